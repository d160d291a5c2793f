-- A subject in one row.
SELECT
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    count(DISTINCT cluster || '/' || node) AS nodes,
    count(DISTINCT cluster || '/' || device) AS devices,
    count(DISTINCT workload) FILTER (WHERE workload <> '(platform)') AS workloads,
    any_value(team) FILTER (WHERE workload <> '(platform)') AS team
FROM subject
