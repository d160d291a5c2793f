-- All of it step by step; null = no sample, or not exported.
WITH steps AS (
    SELECT
        unnest(
            generate_series(
                time_bucket(INTERVAL 5 MINUTE, $since::TIMESTAMP),
                $until::TIMESTAMP - INTERVAL 1 SECOND,
                INTERVAL 5 MINUTE
            )
        ) AS bucket
)

SELECT
    s.bucket AS at,
    d.gpus,
    d.activity_pct,
    d.named_activity_pct,
    d.power_w,
    d.named_power_w,
    d.temp_c,
    d.named_temp_c,
    d.clock_mhz,
    d.named_clock_mhz,
    d.nvlink_gb_s,
    d.pcie_gb_s,
    l.nvlink_crc,
    l.nvlink_replay,
    l.pcie_replay,
    l.ecc_dbe,
    n.received_mb_s,
    n.sent_mb_s
FROM steps AS s
LEFT JOIN device_signals AS d ON s.bucket = d.bucket
LEFT JOIN link_errors AS l ON s.bucket = l.bucket
LEFT JOIN pod_network AS n ON s.bucket = n.bucket
ORDER BY s.bucket ASC
