-- The stored incidents by cause, the most expensive first; `unknown` = those whose cost is unknown.
SELECT
    cause,
    count(*) AS incidents,
    count(*) FILTER (WHERE lost_gpu_hours IS null AND recovery_gpu_hours IS null) AS unknown,
    sum(lost_gpu_hours) AS lost_gpu_hours,
    sum(recovery_gpu_hours) AS recovery_gpu_hours,
    sum(usd) AS usd
FROM stored_incidents
GROUP BY cause
ORDER BY usd DESC NULLS LAST, incidents DESC, cause ASC
