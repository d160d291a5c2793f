-- Their telemetry in steps of five minutes: of all, and of those that the evidence names.
WITH each AS (
    SELECT
        bucket,
        device,
        named,
        100 * sum(act_mean * act_n) / nullif(sum(act_n), 0) AS activity_pct,
        sum(power_w_mean * power_w_n) / nullif(sum(power_w_n), 0) AS power_w,
        max(temp_c_max) AS temp_c,
        avg(sm_clock_mhz_mean) AS clock_mhz,
        max(nvlink_bps_max) / 1e9 AS nvlink_gb_s,
        max(pcie_bps_max) / 1e9 AS pcie_gb_s
    FROM job_devices
    GROUP BY bucket, device, named
)

SELECT
    bucket,
    count(*) AS gpus,
    avg(activity_pct) AS activity_pct,
    avg(activity_pct) FILTER (WHERE named) AS named_activity_pct,
    avg(power_w) AS power_w,
    avg(power_w) FILTER (WHERE named) AS named_power_w,
    max(temp_c) AS temp_c,
    max(temp_c) FILTER (WHERE named) AS named_temp_c,
    avg(clock_mhz) AS clock_mhz,
    min(clock_mhz) FILTER (WHERE named) AS named_clock_mhz,
    avg(nvlink_gb_s) AS nvlink_gb_s,
    avg(pcie_gb_s) AS pcie_gb_s
FROM each
GROUP BY bucket
