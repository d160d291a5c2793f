-- Idle five-minute buckets of held devices, in the columns of idle_looks.sql. A bucket is idle
-- when no witness contradicts another in it and every look is, or when what is left beside its
-- greatest look is so little that fewer looks than $exit_samples can have reached
-- $exit_threshold and the silence between idle looks stays within the gap. Buckets that are not
-- idle come along only where a gap may reach over them ($barriers). What is known beforehand spares
-- work: without $every only buckets with an idle look are read, and columns that no bucket has
-- ($energy, $traffic, $procs, $kernels) are not.
WITH gpu AS (
    SELECT
        unnest($numbers)::INTEGER AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        CASE WHEN unnest($boards) THEN 1 END::FLOAT AS board
),

buckets AS (
    SELECT
        g.number,
        r.bucket,
        r.interval_s,
        r.act_n,
        r.act_mean AS activity,
        r.mem_used_bytes_max,
        CASE WHEN $traffic THEN greatest(r.pcie_bps_max, r.nvlink_bps_max) END AS traffic_bps,
        CASE WHEN $procs THEN r.proc_count_max END AS procs,
        CASE WHEN $kernels THEN r.last_kernel_age_s_min END AS kernel_age_s,
        -- Null for a MIG instance, of which the board's power says nothing.
        r.power_w_mean * g.board AS power_w,
        CASE WHEN $energy THEN r.energy_mj * g.board::DOUBLE END AS energy_mj,
        -- Only what the first lines leave is reckoned by the last.
        CASE
            WHEN r.conflict_s > 0 THEN 4
            WHEN r.act_max <= $threshold + 1e-6 THEN 1
            WHEN
                r.act_mean * r.act_n - r.act_max
                < CASE
                    WHEN r.act_max < $exit_threshold - 1e-6 THEN 1e9
                    ELSE $exit_threshold * ($exit_samples - 1)
                END
                AND (2 + floor((r.act_mean * r.act_n - r.act_max) / greatest($threshold, 1e-6)))
                * r.interval_s <= coalesce($max_gap_s, 3 * r.interval_s)
                AND 1 + floor((r.act_mean * r.act_n - r.act_max) / greatest($threshold, 1e-6))
                < r.act_n
                THEN 1
            ELSE 3
        END::TINYINT AS kind
    FROM rollup_5m AS r
    INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device
    WHERE
        r.bucket >= $since AND r.bucket < $until AND r.device BETWEEN $first AND $last
        AND r.act_n > 0 AND ($every OR r.act_min <= ($threshold + 1e-6)::FLOAT)
        AND (
            $barriers OR r.interval_s > 100
            OR r.act_max <= $threshold + 1e-6
            OR r.act_mean * r.act_n < r.act_max + $exit_threshold * $exit_samples
        )
)

SELECT
    number AS device,
    epoch_us(bucket) AS at,
    interval_s,
    act_n AS looks,
    kind,
    activity,
    power_w,
    energy_mj,
    traffic_bps,
    procs,
    kernel_age_s,
    null::FLOAT AS idle_clock,
    mem_used_bytes_max > 268435456 AS context
FROM buckets
WHERE $barriers OR interval_s > 100 OR kind <> 3
