-- Every GPU of the hour with what its telemetry said at the time, those that are idle first.
SELECT
    h.cluster,
    h.pool,
    h.node,
    h.device,
    h.model,
    h.state,
    nullif(h.workload, '(platform)') AS workload,
    m.activity_pct,
    m.tensor_pct,
    m.power_w,
    m.temp_c,
    m.memory_gb,
    m.clock_mhz,
    m.device IS null AS no_samples
FROM newest_hour AS h
LEFT JOIN device_measures AS m ON h.cluster = m.cluster AND h.device = m.device
ORDER BY h.idle_usd_h DESC NULLS LAST, h.cluster ASC, h.node ASC, h.device ASC
LIMIT $most
