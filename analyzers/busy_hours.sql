-- Hours in which devices mostly worked, and whether they only spun.
WITH engines AS (
    SELECT
        *,
        coalesce(gr_engine_active_mean, gpu_util_pct_mean / 100) AS engine
    FROM rollup_1h
    WHERE
        bucket >= $since AND bucket < $until AND act_n > 0
        AND low_s + busy_s >= 0.5 * covered_s
)

SELECT
    cluster,
    bucket,
    device,
    namespace,
    pod,
    node,
    sharers,
    covered_s,
    conflict_s,
    act_mean,
    engine,
    sm_active_mean,
    tensor_active_mean,
    fp32_active_mean,
    dram_active_mean,
    power_w_mean,
    sm_clock_mhz_mean,
    mem_used_bytes_max,
    mem_used_bytes_min,
    pcie_bps_max,
    nvlink_bps_max,
    coalesce(
        engine >= $spin_engine AND tensor_active_mean < $spin_tensor
        AND dram_active_mean < $spin_dram
        AND coalesce(pcie_bps_max, 0) < $spin_bps
        AND coalesce(nvlink_bps_max, 0) < $spin_bps,
        false
    ) AS spins
FROM engines
