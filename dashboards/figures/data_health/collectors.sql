-- The results of each collector's newest scrapes: the last hour of its scrapes.
WITH newest AS (
    SELECT
        cluster,
        collector,
        max(ts) AS last_ts
    FROM scrape
    WHERE ts >= $recent AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.collector,
    count(*) AS scrapes,
    count(*) FILTER (WHERE s.up) AS succeeded,
    max(s.until) FILTER (WHERE s.up) AS last_success,
    count(DISTINCT s.target) FILTER (WHERE NOT s.up) AS targets_down,
    arg_max(s.error, s.ts) FILTER (WHERE NOT s.up) AS error
FROM scrape AS s
INNER JOIN newest AS n ON s.cluster = n.cluster AND s.collector = n.collector
WHERE s.ts >= $recent AND s.ts > n.last_ts - INTERVAL 1 HOUR
GROUP BY ALL
ORDER BY s.cluster ASC, s.collector ASC
