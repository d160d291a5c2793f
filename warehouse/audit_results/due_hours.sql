-- Hours of the ledger to audit again: those without a result first, then the longest ago. Recent
-- hours are due after `recent_age_h`, others after `age_h`.
WITH hours AS (
    SELECT DISTINCT bucket FROM ledger_1h
),

ages AS (
    SELECT
        h.bucket,
        h.bucket >= $recent AS is_recent,
        least(a.audited_at, d.audited_at) AS audited_at,
        a.audited_at IS null OR d.audited_at IS null AS is_new
    FROM hours AS h
    ANTI JOIN unposted AS u ON h.bucket = date_trunc('hour', u.bucket) AND u.cluster IS null
    LEFT JOIN audit AS a ON a.period = '1h' AND h.bucket = a.bucket AND a.digest = $digest
    LEFT JOIN audit AS d
        ON d.period = '1d' AND date_trunc('day', h.bucket) = d.bucket AND d.digest = $digest
)

SELECT bucket FROM ages
WHERE is_new OR audited_at < CASE WHEN is_recent THEN $recent_before ELSE $before END
ORDER BY is_new DESC, is_recent DESC, bucket DESC
LIMIT $most
