-- The stored incidents by cause, the most expensive first; `unknown` = those whose lost work or
-- recovery is unknown. What is unknown of one is unknown of its cause; lost work has its bound.
SELECT
    cause,
    count(*) AS incidents,
    count(*) FILTER (WHERE lost_gpu_hours IS null OR recovery_gpu_hours IS null) AS unknown,
    CASE WHEN count(lost_gpu_hours) = count(*) THEN sum(lost_gpu_hours) END AS lost_gpu_hours,
    CASE
        WHEN count(coalesce(lost_gpu_hours, most_lost_gpu_hours)) = count(*)
            THEN sum(coalesce(lost_gpu_hours, most_lost_gpu_hours))
    END AS most_lost_gpu_hours,
    CASE WHEN count(recovery_gpu_hours) = count(*) THEN sum(recovery_gpu_hours) END
        AS recovery_gpu_hours,
    CASE WHEN count(usd) = count(*) THEN sum(usd) END AS usd
FROM stored_incidents
GROUP BY cause
ORDER BY usd DESC NULLS LAST, incidents DESC, cause ASC
