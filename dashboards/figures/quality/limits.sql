-- Limits that refused a scrape in the window: what they refused, how often, and the newest error.
SELECT
    cluster,
    collector,
    regexp_extract(error, '[a-z_]+_limit') AS limit_name,
    count(DISTINCT target) AS targets,
    count(*) AS scrapes,
    max(ts) AS last_refusal,
    arg_max(error, ts) AS error
FROM scrape
WHERE
    ts >= $since
    AND ts < $until
    AND regexp_matches(error, '[a-z_]+_limit')
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
ORDER BY scrapes DESC, cluster ASC, collector ASC, limit_name ASC
LIMIT $most
