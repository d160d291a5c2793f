-- Every hour's dollars are its GPU-seconds at their rate: over the states of one device and bucket
-- the price of a GPU-second is one, and what has no rate has no dollars.
WITH device_hours AS (
    SELECT
        cluster,
        device,
        bucket,
        sum(gpu_seconds) AS gpu_s,
        sum(usd) AS usd,
        bool_and(priced) AS priced,
        bool_or(priced) AS any_priced,
        bool_or(priced <> (usd IS NOT NULL)) AS misnamed
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
    GROUP BY ALL
),

rows_at_rate AS (
    SELECT
        l.cluster,
        l.device,
        l.bucket,
        l.usd - h.usd * l.gpu_seconds / h.gpu_s AS off_usd
    FROM ledger AS l
    INNER JOIN
        device_hours AS h
        ON l.cluster = h.cluster AND l.device = h.device AND l.bucket = h.bucket
    WHERE l.priced AND h.priced AND h.gpu_s > 0
)

SELECT
    cluster,
    device,
    bucket,
    max(abs(off_usd)) AS off_usd,
    'a state has a rate of its own' AS why
FROM rows_at_rate
GROUP BY ALL
HAVING max(abs(off_usd)) > 0.00001
UNION ALL
SELECT
    cluster,
    device,
    bucket,
    NULL,
    'priced in part'
FROM device_hours
WHERE misnamed OR priced <> any_priced
ORDER BY ALL
