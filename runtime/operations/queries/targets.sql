-- Targets of collectors, by whether the last scrape of each succeeded.
SELECT
    collector,
    count(*) FILTER (WHERE up) AS up,
    count(*) FILTER (WHERE NOT up) AS down
FROM (
    SELECT
        collector,
        target,
        arg_max(up, ts) AS up
    FROM scrape
    WHERE ts >= $since::TIMESTAMP AND ts < $until::TIMESTAMP AND cluster = $cluster
    GROUP BY collector, target
) AS last_scrapes
GROUP BY collector
