-- Per hour: how many of the samples that healthy sources would have given arrived, and blind time.
SELECT
    bucket AS hour,
    100 * least(1, sum(n) / nullif(sum(expected), 0)) AS coverage_pct,
    100 * sum(conflict_s) / nullif(sum(covered_s), 0) AS conflict_pct,
    100 * sum(blind_s) / nullif(sum(covered_s), 0) AS blind_pct,
    -- An exact count takes five times as long.
    approx_count_distinct(device) AS devices
FROM rollup_1h
WHERE bucket >= $since AND bucket < $until AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY bucket
ORDER BY bucket ASC
