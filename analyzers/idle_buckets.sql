-- Idle five-minute buckets of held devices, in the columns of idle_looks.sql. A bucket is idle
-- when no witness contradicts another in it and every look is, or when what is left beside its
-- greatest look is so little that fewer looks than $exit_samples can have reached
-- $exit_threshold and the silence between idle looks stays within the gap. Buckets that are not
-- idle come along only where a gap may reach over them ($barriers).
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        unnest($boards) AS board
),

buckets AS (
    SELECT
        g.number,
        g.board,
        r.bucket,
        r.interval_s,
        r.act_n,
        r.act_max,
        r.power_w_mean,
        r.energy_mj,
        r.pcie_bps_max,
        r.nvlink_bps_max,
        r.proc_count_max,
        r.last_kernel_age_s_min,
        r.mem_used_bytes_max,
        r.conflict_s > 0 AS conflict,
        r.act_max <= $threshold + 1e-6
        OR (
            r.act_mean * r.act_n - r.act_max
            < CASE
                WHEN r.act_max < $exit_threshold - 1e-6 THEN 1e9
                ELSE $exit_threshold * ($exit_samples - 1)
            END
            AND (2 + floor((r.act_mean * r.act_n - r.act_max) / greatest($threshold, 1e-6)))
            * r.interval_s <= coalesce($max_gap_s, 3 * r.interval_s)
            AND 1 + floor((r.act_mean * r.act_n - r.act_max) / greatest($threshold, 1e-6)) < r.act_n
        ) AS idle
    FROM rollup_5m AS r
    INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device
    WHERE
        r.bucket >= $since AND r.bucket < $until AND r.device BETWEEN $first AND $last
        AND r.act_n > 0
        AND (
            $barriers OR r.interval_s > 100
            OR r.act_max <= $threshold + 1e-6
            OR r.act_mean * r.act_n < r.act_max + $exit_threshold * $exit_samples
        )
)

SELECT
    number::INTEGER AS device,
    epoch_us(bucket) AS at,
    interval_s::DOUBLE AS interval_s,
    act_n::INTEGER AS looks,
    CASE WHEN conflict THEN 4 WHEN idle THEN 1 ELSE 3 END::TINYINT AS kind,
    act_max::FLOAT AS activity,
    CASE WHEN board THEN power_w_mean END::FLOAT AS power_w,
    CASE WHEN board THEN energy_mj END::DOUBLE AS energy_mj,
    greatest(pcie_bps_max, nvlink_bps_max)::FLOAT AS traffic_bps,
    proc_count_max::FLOAT AS procs,
    last_kernel_age_s_min::FLOAT AS kernel_age_s,
    null::FLOAT AS idle_clock,
    (mem_used_bytes_max > 268435456)::TINYINT::FLOAT AS context
FROM buckets
WHERE $barriers OR interval_s > 100 OR conflict OR idle
