-- The window in one row. A null sum of dollars = no part of it has a price. Rows are summed by
-- state first: sums with conditions over every row cost more.
WITH by_state AS (
    SELECT
        state,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        sum(gpu_hours) FILTER (WHERE usd IS null) AS unpriced_gpu_hours,
        sum(known_gpu_hours) AS known_gpu_hours,
        sum(busy_gpu_hours) AS busy_gpu_hours,
        sum(measured_gpu_hours) AS measured_gpu_hours,
        sum(effective_gpu_hours) AS effective_gpu_hours,
        max(price_as_of) AS price_as_of
    FROM paid
    GROUP BY state
)

SELECT
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(unpriced_gpu_hours), 0) AS unpriced_gpu_hours,
    coalesce(sum(known_gpu_hours), 0) AS known_gpu_hours,
    coalesce(sum(busy_gpu_hours), 0) AS busy_gpu_hours,
    coalesce(sum(measured_gpu_hours), 0) AS measured_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    max(price_as_of) AS price_as_of
FROM by_state
