-- Every sample of an allocated device, with its kind: 0 unknown, 1 idle, 2 between the thresholds,
-- 3 from the exit threshold on, 4 signals contradict each other. The GPU's power and memory are no
-- data about one MIG instance.
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        unnest($whole_gpus) AS whole_gpu,
        unnest($half_tdp_w) AS half_tdp_w,
        unnest($context_w) AS context_w
),

readings AS (
    SELECT
        g.number,
        g.whole_gpu,
        g.half_tdp_w,
        g.context_w,
        s.ts,
        s.gr_engine_active,
        s.gpu_util_pct,
        s.mem_used_bytes,
        s.proc_count,
        s.last_kernel_age_s,
        s.throttle_mask,
        coalesce(s.interval_s, 60) AS interval_s,
        CASE WHEN g.whole_gpu THEN s.power_w END AS power_w,
        CASE WHEN g.whole_gpu THEN s.energy_mj END AS energy_mj,
        greatest(s.pcie_tx_bps + s.pcie_rx_bps, s.nvlink_tx_bps + s.nvlink_rx_bps) AS traffic_bps,
        s.activity
    FROM active_sample AS s
    INNER JOIN gpu AS g ON s.cluster = g.cluster AND s.device = g.device
    WHERE s.ts >= $since AND s.ts < $until AND s.device BETWEEN $first AND $last
)

SELECT
    number::INTEGER AS device,
    epoch_us(ts) AS at,
    interval_s::DOUBLE AS interval_s,
    1::INTEGER AS samples,
    CASE
        WHEN activity IS null THEN 0
        WHEN gr_engine_active <= 0.010001 AND gpu_util_pct >= 10 THEN 4
        WHEN activity <= $threshold + 1e-6 AND power_w > half_tdp_w THEN 4
        WHEN whole_gpu AND gpu_util_pct >= 90 AND mem_used_bytes = 0 AND power_w <= context_w THEN 4
        WHEN activity <= $threshold + 1e-6 THEN 1
        WHEN activity < $exit_threshold - 1e-6 THEN 2
        ELSE 3
    END::TINYINT AS kind,
    activity::FLOAT AS activity,
    power_w::FLOAT AS power_w,
    power_w::FLOAT AS still_w,
    energy_mj::DOUBLE AS energy_mj,
    traffic_bps::FLOAT AS traffic_bps,
    proc_count::FLOAT AS procs,
    last_kernel_age_s::FLOAT AS kernel_age_s,
    ((throttle_mask & 1) = 1)::TINYINT::FLOAT AS idle_clock,
    (mem_used_bytes > 268435456)::TINYINT::FLOAT AS context,
    activity >= $exit_threshold - 1e-6 AS peak
FROM readings
