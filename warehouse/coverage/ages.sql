-- When each cluster's newest sample ended, and the interval of its samples. Devices are as new as
-- the last accounting; of the scrapes since then those of devices say what was read meanwhile.
WITH seen AS (
    SELECT
        cluster,
        max(last_seen) AS newest,
        arg_max(interval_s, last_seen) AS interval_s
    FROM device
    WHERE $cluster::VARCHAR IS null OR cluster = $cluster
    GROUP BY cluster
),

scraped AS (
    SELECT
        s.cluster,
        max(s.until) AS newest
    FROM scrape AS s
    INNER JOIN seen ON s.cluster = seen.cluster
    WHERE
        s.up
        AND s.samples > 0
        AND s.collector IN ('exporters', 'prometheus', 'nvml')
        AND s.ts BETWEEN seen.newest - INTERVAL 1 HOUR AND seen.newest + INTERVAL 1 HOUR
    GROUP BY s.cluster
)

SELECT
    seen.cluster,
    seen.interval_s,
    greatest(seen.newest, scraped.newest) AS newest
FROM seen
LEFT JOIN scraped ON seen.cluster = scraped.cluster
ORDER BY seen.cluster
