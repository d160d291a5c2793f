-- What could be saved, by analyzer and kind of saving; no GPU-hour twice, and nothing of
-- a finding whose action took effect. Beside it, the bound of hours in use.
SELECT
    analyzer,
    saving,
    if(count(DISTINCT evidence) = 1, any_value(evidence), 'partly suspected') AS evidence,
    count(DISTINCT id) AS findings,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(idle_gpu_hours), 0) AS idle_gpu_hours,
    coalesce(sum(in_use_gpu_hours), 0) AS in_use_gpu_hours,
    sum(in_use_usd) AS in_use_usd,
    sum(at_most_gpu_hours) AS at_most_gpu_hours,
    sum(at_most_usd) AS at_most_usd,
    bool_and(in_use_gpu_hours IS NOT null) AS divided,
    max(found_at) AS found_at
FROM advice
WHERE gpu_hours + at_most_gpu_hours > 0 AND NOT is_handled
GROUP BY ALL
