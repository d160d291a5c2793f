-- A period in one row: paid, used, wasted and unknown add up; hours tell whether it is whole.
-- Dollars are lists: those of each cluster. Rows are summed by day and state first: sums with
-- conditions over every row cost more.
WITH by_state AS (
    SELECT
        date_trunc('day', bucket) AS day,
        cluster,
        state,
        namespace <> '(platform)' AS allocated,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd
    FROM paid
    GROUP BY ALL
),

by_cluster AS (
    SELECT
        cluster,
        sum(usd) AS usd,
        coalesce(sum(usd) FILTER (WHERE state IN ('productive', 'low', 'startup')), sum(usd) * 0)
            AS used_usd,
        coalesce(sum(usd) FILTER (WHERE list_contains($wasted, state)), sum(usd) * 0) AS wasted_usd
    FROM by_state
    GROUP BY cluster
)

SELECT
    count(DISTINCT day) AS days,
    count(DISTINCT cluster) AS clusters,
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    (SELECT coalesce(list(usd), []) FROM by_cluster) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low', 'startup')), 0)
        AS used_gpu_hours,
    (SELECT coalesce(list(used_usd), []) FROM by_cluster) AS used_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE list_contains($wasted, state)), 0) AS wasted_gpu_hours,
    (SELECT coalesce(list(wasted_usd), []) FROM by_cluster) AS wasted_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE allocated), 0) AS allocated_gpu_hours
FROM by_state
