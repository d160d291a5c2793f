-- The telemetry of each device in one step; null = no sample has it.
SELECT
    cluster,
    device,
    100 * sum(act_mean * act_n) / nullif(sum(act_n), 0) AS activity_pct,
    100 * sum(tensor_active_mean * tensor_active_n) / nullif(sum(tensor_active_n), 0)
        AS tensor_pct,
    sum(power_w_mean * power_w_n) / nullif(sum(power_w_n), 0) AS power_w,
    max(temp_c_max)::DOUBLE AS temp_c,
    sum(mem_used_bytes_mean * mem_used_bytes_n) / nullif(sum(mem_used_bytes_n), 0) / 1e9
        AS memory_gb,
    avg(sm_clock_mhz_mean) AS clock_mhz
FROM rolled
WHERE bucket = $step::TIMESTAMP AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY cluster, device
