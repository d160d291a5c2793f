-- The cost of a window by team, model and state; usd is null where a part has no price.
SELECT
    CASE WHEN namespace = '' THEN '(platform)' ELSE coalesce(team, namespace) END AS team,
    coalesce(model, '(unknown)') AS model,
    state,
    round(fsum(gpu_seconds) / 3600.0, 6) AS gpu_hours,
    CASE WHEN count(*) FILTER (WHERE NOT priced) = 0 THEN sum(usd) END AS usd
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
