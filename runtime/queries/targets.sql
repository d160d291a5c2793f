-- What collectors looked at by how the last look at each went.
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
) AS looks
GROUP BY collector
