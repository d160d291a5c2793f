-- Idle five-minute buckets of allocated devices, in the columns of samples.sql. A bucket without
-- contradicting signals is idle in two cases. Either every sample is idle. Or the sum of its
-- activity without the greatest sample is so small that fewer than $exit_samples samples can have
-- reached $exit_threshold, and the silence between idle samples stays within the gap. Buckets that
-- are not idle are returned only where a gap may extend over them ($barriers). To read less:
-- without $every only buckets with an idle sample are read, and columns that no bucket has
-- ($energy, $traffic, $procs, $kernels) are not.
WITH gpu AS (
    SELECT
        unnest($numbers)::INTEGER AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        CASE WHEN unnest($whole_gpus) THEN 1 END::FLOAT AS whole_gpu
),

buckets AS (
    SELECT
        g.number,
        r.bucket,
        r.interval_s,
        r.act_n,
        r.act_mean AS activity,
        r.mem_used_bytes_max,
        r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0 AS peak,
        CASE WHEN $traffic THEN greatest(r.pcie_bps_max, r.nvlink_bps_max) END AS traffic_bps,
        CASE WHEN $procs THEN r.proc_count_max END AS procs,
        CASE WHEN $kernels THEN r.last_kernel_age_s_min END AS kernel_age_s,
        -- Null for a MIG instance: the sensor measures the power of the whole GPU.
        r.power_w_mean * g.whole_gpu AS power_w,
        CASE WHEN r.power_w_min = r.power_w_max THEN r.power_w_min * g.whole_gpu END AS still_w,
        CASE WHEN $energy THEN r.energy_mj * g.whole_gpu::DOUBLE END AS energy_mj,
        -- The arithmetic runs only for buckets that the first cases leave undecided.
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
    act_n AS samples,
    kind,
    activity,
    power_w,
    still_w,
    energy_mj,
    traffic_bps,
    procs,
    kernel_age_s,
    null::FLOAT AS idle_clock,
    mem_used_bytes_max > 268435456 AS context,
    peak
FROM buckets
WHERE $barriers OR interval_s > 100 OR kind <> 3
