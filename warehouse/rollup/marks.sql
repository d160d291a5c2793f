-- The dirty buckets, and of their cluster the longest known scrape interval and how many devices.
WITH longest AS (
    SELECT
        cluster,
        max(interval_s) AS interval_s,
        count(*) AS devices
    FROM device
    GROUP BY cluster
)

SELECT DISTINCT
    d.cluster,
    d.bucket,
    l.interval_s,
    coalesce(l.devices, 0) AS devices
FROM dirty AS d
LEFT JOIN longest AS l ON d.cluster = l.cluster
ORDER BY d.cluster, d.bucket
