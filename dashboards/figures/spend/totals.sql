-- A window in one row: paid, used, wasted and unknown add up; days tell whether it is whole.
-- `bills` are the dollars of each cluster, by state. Rows are summed by day and state first: sums
-- with conditions over every row cost more.
WITH by_state AS (
    SELECT
        date_trunc('day', bucket) AS day,
        cluster,
        state,
        namespace <> '(platform)' AS allocated,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        sum(gpu_hours) FILTER (WHERE usd IS null) AS unpriced_gpu_hours,
        sum(gpu_hours) FILTER (WHERE estimated) AS estimated_gpu_hours,
        sum(usd) FILTER (WHERE estimated) AS estimated_usd,
        sum(known_gpu_hours) AS known_gpu_hours,
        sum(busy_gpu_hours) AS busy_gpu_hours,
        sum(measured_gpu_hours) AS measured_gpu_hours,
        sum(effective_gpu_hours) AS effective_gpu_hours,
        max(price_as_of) AS price_as_of
    FROM paid
    GROUP BY ALL
),

by_cluster AS (
    SELECT
        cluster,
        list(struct_pack(state := state, usd := usd) ORDER BY state) AS bill
    FROM (
        SELECT
            cluster,
            state,
            sum(usd) AS usd
        FROM by_state
        GROUP BY ALL
    ) AS states
    GROUP BY cluster
)

SELECT
    count(DISTINCT day) AS days,
    count(DISTINCT cluster) AS clusters,
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    (SELECT coalesce(list(bill), []) FROM by_cluster) AS bills,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low', 'startup')), 0)
        AS used_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE list_contains($wasted, state)), 0) AS wasted_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(unpriced_gpu_hours), 0) AS unpriced_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE allocated), 0) AS allocated_gpu_hours,
    coalesce(sum(estimated_gpu_hours), 0) AS estimated_gpu_hours,
    sum(estimated_usd) AS estimated_usd,
    coalesce(sum(known_gpu_hours), 0) AS known_gpu_hours,
    coalesce(sum(busy_gpu_hours), 0) AS busy_gpu_hours,
    coalesce(sum(measured_gpu_hours), 0) AS measured_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    max(price_as_of) AS price_as_of
FROM by_state
