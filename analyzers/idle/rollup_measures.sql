-- Which measures the window's rollups have, so that empty columns are not read: the hours have the
-- same measures as their buckets. Without hours, every measure is possible.
SELECT
    count(*) = 0 OR count(energy_mj) > 0 AS energy,
    count(*) = 0 OR count(pcie_bps_max) > 0 OR count(nvlink_bps_max) > 0 AS traffic,
    count(*) = 0 OR count(proc_count_max) > 0 AS procs,
    count(*) = 0 OR count(last_kernel_age_s_min) > 0 AS kernels,
    count(*) = 0 OR coalesce(max(interval_s), 0) > 100 OR coalesce(max(conflict_s), 0) > 0 AS every
FROM rollup_1h
WHERE bucket >= time_bucket(INTERVAL 1 HOUR, $since::TIMESTAMP) AND bucket < $until
