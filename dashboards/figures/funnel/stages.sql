-- The GPU-hours of each stage by job size; of unallocated hours, and of workloads that held no
-- device, the size is null.
WITH used AS (
    SELECT
        cluster,
        workload,
        state,
        workload = '(platform)' AS unallocated,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        sum(known_gpu_hours) AS known_gpu_hours,
        sum(busy_gpu_hours) AS busy_gpu_hours,
        sum(measured_gpu_hours) FILTER (WHERE busy_gpu_hours IS NOT null) AS measured_gpu_hours,
        sum(effective_gpu_hours) FILTER (WHERE busy_gpu_hours IS NOT null) AS effective_gpu_hours
    FROM paid
    GROUP BY ALL
)

SELECT
    CASE WHEN NOT u.unallocated THEN s.devices END AS devices,
    u.unallocated,
    sum(u.gpu_hours) AS gpu_hours,
    sum(u.usd) AS usd,
    coalesce(sum(u.known_gpu_hours), 0) AS known_gpu_hours,
    coalesce(sum(u.busy_gpu_hours), 0) AS busy_gpu_hours,
    coalesce(sum(u.measured_gpu_hours), 0) AS measured_gpu_hours,
    coalesce(sum(u.effective_gpu_hours), 0) AS effective_gpu_hours,
    coalesce(sum(u.effective_gpu_hours) FILTER (WHERE u.state <> 'lost'), 0) AS useful_gpu_hours
FROM used AS u
LEFT JOIN sizes AS s ON u.cluster = s.cluster AND u.workload = s.workload
GROUP BY ALL
