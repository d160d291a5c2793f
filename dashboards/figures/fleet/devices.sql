-- Every GPU of the hour with what its telemetry said at the time. Trouble comes first: unavailable,
-- then idle while allocated by cost, then unknown or without a sample; then by node.
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
ORDER BY
    CASE
        WHEN h.state = 'unavailable' THEN 0
        WHEN h.state = 'idle' THEN 1
        WHEN h.state = 'unknown' OR m.device IS null THEN 2
        ELSE 3
    END ASC,
    CASE WHEN h.state = 'idle' THEN h.idle_usd_h END DESC NULLS LAST,
    h.cluster ASC,
    h.node ASC,
    h.device ASC
LIMIT $most
