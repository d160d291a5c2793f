-- The dollars of an hour are its GPU-seconds at one rate: all states of one device and bucket must
-- have the same price per GPU-second, and rows without a rate have no dollars. `off_usd` is the
-- root of the sum of squares by which the rows' dollars differ from that.
WITH device_hours AS (
    SELECT
        cluster,
        device,
        bucket,
        bool_and(priced) AS priced,
        bool_or(priced) AS any_priced,
        bool_or(priced <> (usd IS NOT NULL)) AS misnamed,
        sum(usd::DOUBLE) / sum(gpu_seconds) AS rate,
        sum(usd::DOUBLE * usd::DOUBLE) AS usd_usd,
        sum(usd::DOUBLE * gpu_seconds) AS usd_s,
        sum(gpu_seconds * gpu_seconds) AS s_s
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
    GROUP BY cluster, device, bucket
),

judged AS (
    SELECT
        *,
        sqrt(greatest(0, usd_usd - 2 * rate * usd_s + rate * rate * s_s)) AS off_usd
    FROM device_hours
)

SELECT
    cluster,
    device,
    bucket,
    CASE WHEN NOT misnamed AND priced THEN off_usd END AS off_usd,
    CASE
        WHEN misnamed OR priced <> any_priced THEN 'priced in part'
        ELSE 'a state has a rate of its own'
    END AS why
FROM judged
WHERE misnamed OR priced <> any_priced OR (priced AND off_usd > 0.00001)
ORDER BY ALL
