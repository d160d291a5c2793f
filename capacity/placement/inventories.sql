-- When each cluster's API was last read before a given time, how often, and the share of successful
-- reads in the day before.
SELECT
    cluster,
    epoch_us(max(coalesce(until, ts)) FILTER (WHERE up)) AS seen_us,
    avg(up::INTEGER) AS coverage,
    coalesce(
        (epoch(max(ts)) - epoch(min(ts))) / nullif(count(DISTINCT ts) - 1, 0), 60
    ) AS interval_s
FROM scrape
WHERE
    collector IN ('kubernetes', 'kubectl') AND ts < $until
    AND ts >= $until::TIMESTAMP - INTERVAL 1 DAY
GROUP BY cluster
ORDER BY cluster
