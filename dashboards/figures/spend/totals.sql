-- The window in one row. A null sum of dollars = no part of it has a price.
SELECT
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE usd IS null), 0) AS unpriced_gpu_hours,
    coalesce(sum(known_gpu_hours), 0) AS known_gpu_hours,
    coalesce(sum(busy_gpu_hours), 0) AS busy_gpu_hours,
    coalesce(sum(measured_gpu_hours), 0) AS measured_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    max(price_as_of) AS price_as_of
FROM paid
