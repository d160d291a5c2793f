-- What is advised, a row per finding, what saves most first: the first advice is the one to take.
SELECT
    id,
    any_value(analyzer) AS analyzer,
    any_value(kind) AS kind,
    any_value(cluster) AS cluster,
    any_value(team) AS team,
    any_value(workload) AS workload,
    any_value(evidence) AS evidence,
    arg_max(verb, gpu_hours) AS verb,
    arg_max(effort, gpu_hours) AS effort,
    arg_max(saving, gpu_hours) AS saving,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM advice
GROUP BY id
HAVING sum(gpu_hours) > 0 OR sum(usd) > 0
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, id ASC
