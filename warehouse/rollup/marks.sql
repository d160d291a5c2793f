-- The dirty buckets, and the longest known scrape interval of their cluster's devices.
WITH longest AS (
    SELECT
        cluster,
        max(interval_s) AS interval_s
    FROM device
    GROUP BY cluster
)

SELECT DISTINCT
    d.cluster,
    d.bucket,
    l.interval_s
FROM dirty AS d
LEFT JOIN longest AS l ON d.cluster = l.cluster
ORDER BY d.cluster, d.bucket
