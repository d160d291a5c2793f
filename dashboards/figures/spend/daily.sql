-- GPU-hours, those of them that were allocated, and dollars per day and state.
SELECT
    date_trunc('day', bucket) AS day,
    state,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE namespace <> '(platform)'), 0) AS allocated_gpu_hours,
    sum(usd) AS usd
FROM paid
GROUP BY ALL
ORDER BY day ASC, state ASC
