-- A period in one row: paid, used, wasted and unknown add up; hours tell whether it is whole.
SELECT
    count(DISTINCT date_trunc('day', bucket)) AS days,
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low', 'startup')), 0)
        AS used_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state IN ('productive', 'low', 'startup')), sum(usd) * 0)
        AS used_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE list_contains($wasted, state)), 0) AS wasted_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE list_contains($wasted, state)), sum(usd) * 0) AS wasted_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE namespace <> '(platform)'), 0) AS allocated_gpu_hours
FROM paid
