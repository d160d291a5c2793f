-- The advice, a row per finding: the first recommendation, with the hours of all recommendations.
-- A handled finding saves nothing more.
SELECT
    id,
    any_value(cluster) AS cluster,
    any_value(analyzer) AS analyzer,
    any_value(kind) AS kind,
    any_value(evidence) AS evidence,
    any_value(team) AS team,
    any_value(workload) AS workload,
    any_value(start) AS since,
    arg_max(verb, gpu_hours + at_most_gpu_hours) AS verb,
    arg_max(effort, gpu_hours + at_most_gpu_hours) AS effort,
    arg_max(saving, gpu_hours + at_most_gpu_hours) AS saving,
    bool_or(is_handled) AS is_handled,
    sum(if(is_handled, 0, gpu_hours)) AS gpu_hours,
    sum(if(is_handled, 0, usd)) AS usd,
    sum(if(is_handled, 0, at_most_gpu_hours)) AS at_most_gpu_hours,
    sum(if(is_handled, 0, at_most_usd)) AS at_most_usd
FROM advice
GROUP BY id
