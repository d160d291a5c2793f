-- One cluster's part of `rollup_1h`, from rows of `rollup_5m` of the wanted devices. Counts, sums,
-- minima and maxima of 5 minutes give exactly those of the hour's samples; means are weighted by
-- their number of samples.
WITH hours AS (
    SELECT
        cluster,
        time_bucket(INTERVAL 1 HOUR, bucket) AS bucket,
        device,
        namespace,
        pod,
        max(node) AS node,
        max(parent) AS parent,
        max(vendor) AS vendor,
        max(model) AS model,
        max(profile) AS profile,
        max(sharers) AS sharers,
        coalesce(
            sum(interval_s::DOUBLE * n) / nullif(sum(n) FILTER (WHERE interval_s IS NOT NULL), 0),
            avg(interval_s)
        ) AS interval_s,
        sum(n) AS n,
        sum(covered_s) AS covered_s,
        sum(blind_s) AS blind_s,
        sum(idle_s) AS idle_s,
        sum(low_s) AS low_s,
        sum(busy_s) AS busy_s,
        sum(conflict_s) AS conflict_s,
        sum(act_n) AS act_n,
        min(act_min) AS act_min,
        sum(act_mean::DOUBLE * act_n) / nullif(sum(act_n), 0) AS act_mean,
        max(act_max) AS act_max,
        [
            sum(act_hist[1])::INTEGER,
            sum(act_hist[2])::INTEGER,
            sum(act_hist[3])::INTEGER,
            sum(act_hist[4])::INTEGER,
            sum(act_hist[5])::INTEGER,
            sum(act_hist[6])::INTEGER,
            sum(act_hist[7])::INTEGER,
            sum(act_hist[8])::INTEGER,
            sum(act_hist[9])::INTEGER,
            sum(act_hist[10])::INTEGER,
            sum(act_hist[11])::INTEGER,
            sum(act_hist[12])::INTEGER,
            sum(act_hist[13])::INTEGER,
            sum(act_hist[14])::INTEGER,
            sum(act_hist[15])::INTEGER,
            sum(act_hist[16])::INTEGER,
            sum(act_hist[17])::INTEGER,
            sum(act_hist[18])::INTEGER,
            sum(act_hist[19])::INTEGER,
            sum(act_hist[20])::INTEGER,
            sum(act_hist[21])::INTEGER
        ] AS act_hist,
        sum(gpu_util_pct_n) AS gpu_util_pct_n,
        min(gpu_util_pct_min) AS gpu_util_pct_min,
        sum(gpu_util_pct_mean::DOUBLE * gpu_util_pct_n) / nullif(sum(gpu_util_pct_n), 0)
            AS gpu_util_pct_mean,
        max(gpu_util_pct_max) AS gpu_util_pct_max,
        sum(gr_engine_active_n) AS gr_engine_active_n,
        min(gr_engine_active_min) AS gr_engine_active_min,
        sum(gr_engine_active_mean::DOUBLE * gr_engine_active_n) / nullif(sum(gr_engine_active_n), 0)
            AS gr_engine_active_mean,
        max(gr_engine_active_max) AS gr_engine_active_max,
        sum(sm_active_n) AS sm_active_n,
        min(sm_active_min) AS sm_active_min,
        sum(sm_active_mean::DOUBLE * sm_active_n) / nullif(sum(sm_active_n), 0)
            AS sm_active_mean,
        max(sm_active_max) AS sm_active_max,
        sum(tensor_active_n) AS tensor_active_n,
        min(tensor_active_min) AS tensor_active_min,
        sum(tensor_active_mean::DOUBLE * tensor_active_n) / nullif(sum(tensor_active_n), 0)
            AS tensor_active_mean,
        max(tensor_active_max) AS tensor_active_max,
        sum(dram_active_n) AS dram_active_n,
        min(dram_active_min) AS dram_active_min,
        sum(dram_active_mean::DOUBLE * dram_active_n) / nullif(sum(dram_active_n), 0)
            AS dram_active_mean,
        max(dram_active_max) AS dram_active_max,
        sum(fp32_active_n) AS fp32_active_n,
        min(fp32_active_min) AS fp32_active_min,
        sum(fp32_active_mean::DOUBLE * fp32_active_n) / nullif(sum(fp32_active_n), 0)
            AS fp32_active_mean,
        max(fp32_active_max) AS fp32_active_max,
        sum(power_w_n) AS power_w_n,
        min(power_w_min) AS power_w_min,
        sum(power_w_mean::DOUBLE * power_w_n) / nullif(sum(power_w_n), 0)
            AS power_w_mean,
        max(power_w_max) AS power_w_max,
        sum(mem_used_bytes_n) AS mem_used_bytes_n,
        min(mem_used_bytes_min) AS mem_used_bytes_min,
        sum(mem_used_bytes_mean::DOUBLE * mem_used_bytes_n) / nullif(sum(mem_used_bytes_n), 0)
            AS mem_used_bytes_mean,
        max(mem_used_bytes_max) AS mem_used_bytes_max,
        sum(energy_mj) AS energy_mj,
        max(temp_c_max) AS temp_c_max,
        sum(sm_clock_mhz_mean::DOUBLE * n)
        / nullif(sum(n) FILTER (WHERE sm_clock_mhz_mean IS NOT NULL), 0) AS sm_clock_mhz_mean,
        max(pcie_bps_max) AS pcie_bps_max,
        max(nvlink_bps_max) AS nvlink_bps_max,
        bit_or(throttle_mask) AS throttle_mask,
        max(xid_max) AS xid_max,
        max(proc_count_max) AS proc_count_max,
        min(last_kernel_age_s_min) AS last_kernel_age_s_min
    FROM owner_hour_part
    WHERE cluster = $cluster AND bucket >= $first AND bucket < $last
    GROUP BY ALL
)

SELECT
    *,
    3600 / interval_s AS expected
FROM hours
