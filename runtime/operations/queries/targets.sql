-- Targets of collectors, by whether the last scrape of each succeeded or exceeded a limit, and how
-- many of their values were refused and clipped.
SELECT
    collector,
    count(*) FILTER (WHERE up) AS up,
    count(*) FILTER (WHERE NOT up) AS down,
    count(*) FILTER (WHERE NOT up AND starts_with(error, 'over ')) AS over_limit,
    sum(refused) AS refused,
    sum(clipped) AS clipped
FROM (
    SELECT
        collector,
        target,
        arg_max(up, ts) AS up,
        arg_max(coalesce(error, ''), ts) AS error,
        coalesce(sum(rejected), 0) AS refused,
        coalesce(sum(clipped), 0) AS clipped
    FROM scrape
    WHERE ts >= $since::TIMESTAMP AND ts < $until::TIMESTAMP AND cluster = $cluster
    GROUP BY collector, target
) AS last_scrapes
GROUP BY collector
