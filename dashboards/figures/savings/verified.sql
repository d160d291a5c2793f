-- The measured savings of actions in the window, by kind of dollars; nothing is counted twice.
SELECT
    kind,
    count(DISTINCT action) AS actions,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    sum(predicted_gpu_hours) AS predicted_gpu_hours,
    sum(predicted_usd) AS predicted_usd,
    sum(restart_usd) AS restart_usd,
    count(DISTINCT action) FILTER (WHERE is_reversed) AS reversed,
    coalesce(sum(unknown_gpu_hours), 0) AS unknown_gpu_hours,
    sum(held_gpu_hours) AS held_gpu_hours,
    sum(held_usd) AS held_usd
FROM measured
GROUP BY kind
ORDER BY kind ASC
