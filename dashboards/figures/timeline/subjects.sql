-- Possible subjects of a timeline, the highest idle cost first.
WITH keyed AS (
    SELECT
        cluster,
        CASE $by WHEN 'workload' THEN workload WHEN 'node' THEN node ELSE device END AS name,
        CASE WHEN $by = 'workload' THEN team END AS team,
        state,
        gpu_hours,
        usd
    FROM subject
    WHERE $by <> 'workload' OR workload <> '(platform)'
)

SELECT
    cluster,
    name,
    any_value(team) AS team,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd
FROM keyed
WHERE $search = '' OR contains(lower(name), lower($search))
GROUP BY cluster, name
ORDER BY idle_usd DESC NULLS LAST, idle_gpu_hours DESC, gpu_hours DESC, name ASC
LIMIT $most
