-- The results of every collector's scrapes and polls in the window. The last success may be after
-- the window: a poll at its end is as recent as the samples that end there.
SELECT
    cluster,
    collector,
    count(DISTINCT target) FILTER (WHERE ts < $until) AS targets,
    count(*) FILTER (WHERE ts < $until) AS scrapes,
    100.0 * count(*) FILTER (WHERE up AND ts < $until)
    / count(*) FILTER (WHERE ts < $until) AS up_pct,
    max(until) FILTER (WHERE up) AS last_success,
    greatest(0, epoch($now::TIMESTAMP) - epoch(max(until) FILTER (WHERE up))) / 60 AS lag_min,
    sum(samples) FILTER (WHERE ts < $until) AS samples,
    sum(rejected) FILTER (WHERE ts < $until) AS rejected,
    sum(clipped) FILTER (WHERE ts < $until) AS clipped,
    median(seconds) FILTER (WHERE up AND ts < $until) AS seconds,
    count(DISTINCT target) FILTER (WHERE NOT up AND ts < $until) AS targets_failed,
    arg_max(error, ts) FILTER (WHERE NOT up AND ts < $until) AS error
FROM scrape
WHERE ts >= $since AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
HAVING count(*) FILTER (WHERE ts < $until) > 0
ORDER BY up_pct ASC, cluster ASC, collector ASC
LIMIT $most
