-- Hours and dollars per cluster's bill and team; the platform's are unallocated.
SELECT
    cluster,
    team,
    team <> '(platform)' AS owned,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low')), 0) AS used_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE usd_loaded IS null), 0) AS unpriced_gpu_hours,
    sum(known_gpu_hours) AS known_gpu_hours,
    sum(busy_gpu_hours) AS busy_gpu_hours,
    sum(measured_gpu_hours) AS measured_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    sum(usd_gpu) AS usd_gpu,
    sum(usd_loaded) AS usd_loaded,
    coalesce(sum(usd_loaded) FILTER (WHERE state = 'idle'), sum(usd_loaded) * 0) AS idle_usd
FROM paid
GROUP BY ALL
