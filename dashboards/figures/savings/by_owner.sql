-- What could be saved, by some names of the findings' owners as `fallow spend` has them; the others
-- are null.
SELECT
    CASE WHEN list_contains($by, 'cluster') THEN cluster END AS cluster,
    CASE WHEN list_contains($by, 'namespace') THEN namespace END AS namespace,
    CASE WHEN list_contains($by, 'team') THEN team END AS team,
    CASE
        WHEN NOT list_contains($by, 'workload') THEN null
        WHEN namespace = '(platform)' THEN namespace
        ELSE workload
    END AS workload,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM advice
WHERE NOT is_handled
GROUP BY ALL
