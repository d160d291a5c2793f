-- The results of every collector's scrapes and polls in the window.
SELECT
    cluster,
    collector,
    count(DISTINCT target) AS targets,
    count(*) AS scrapes,
    100.0 * count(*) FILTER (WHERE up) / count(*) AS up_pct,
    max(until) FILTER (WHERE up) AS last_success,
    greatest(0, epoch($now::TIMESTAMP) - epoch(max(until) FILTER (WHERE up))) / 60 AS lag_min,
    sum(samples) AS samples,
    sum(rejected) AS rejected,
    median(seconds) FILTER (WHERE up) AS seconds,
    count(DISTINCT target) FILTER (WHERE NOT up) AS targets_failed,
    arg_max(error, ts) FILTER (WHERE NOT up) AS error
FROM scrape
WHERE ts >= $since AND ts < $until AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
ORDER BY up_pct ASC, cluster ASC, collector ASC
LIMIT $most
