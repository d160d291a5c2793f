-- One day of samples of every GPU, one a minute, with what the failures of its jobs leave until the
-- day ends. A GPU that is lost has no samples any more, and a node for three hours.
INSERT INTO sample BY NAME
WITH ticks AS (
    SELECT
        g.node,
        s.slot,
        'GPU-' || g.node || '-' || s.slot AS device,
        t.ts
    FROM range($gpus // 8) AS g (node), -- noqa: AL05
        range(8) AS s (slot), -- noqa: AL05
        range($day, $day + INTERVAL 1 DAY, INTERVAL 1 MINUTE) AS t (ts) -- noqa: AL05
),

struck AS (
    SELECT
        k.*,
        k.node // $job_nodes AS place,
        date_diff('day', TIMESTAMP '2026-10-01', k.ts) AS turn,
        f.* EXCLUDE (kind, place, turn, node, slot),
        coalesce(k.ts >= f.failed_at AND k.node = f.node AND k.slot = f.slot, false) AS is_sick,
        coalesce(
            (
                f.phase = 'Failed' AND (k.node = f.node OR f.others = 'same')
                AND k.ts >= f.failed_at + INTERVAL 1 MINUTE
            )
            OR (f.phase = 'Pending' AND k.node = f.node)
            OR (f.others = 'watchdog' AND k.ts >= f.failed_at + INTERVAL 10 MINUTE),
            false
        ) AS is_free
    FROM ticks AS k
    LEFT JOIN failures AS f
        ON
            k.node // $job_nodes = f.place
            AND date_diff('day', TIMESTAMP '2026-10-01', $day) = f.turn
    WHERE
        coalesce(
            f.lost <> 'node' OR k.node <> f.node
            OR k.ts NOT BETWEEN f.failed_at AND f.failed_at + INTERVAL 3 HOUR,
            true
        )
)

SELECT
    'bench' AS cluster,
    k.ts,
    k.device,
    'node-' || k.node AS node,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    CASE WHEN NOT k.is_free THEN 'team-' || k.place % 40 END AS namespace,
    CASE
        WHEN NOT k.is_free
            THEN 'train-' || k.place || '-' || k.turn || '-' || k.node % $job_nodes
    END AS pod,
    60 AS interval_s,
    'exporters' AS source,
    CASE WHEN k.is_free THEN 0 ELSE 0.9 END AS gr_engine_active,
    CASE WHEN k.is_free THEN 0 ELSE 0.7 END AS sm_active,
    CASE WHEN k.is_free THEN 0 ELSE 0.3 END AS tensor_active,
    CASE WHEN k.is_free THEN 70 ELSE 550 END + hash(k.device, k.ts) % 60 AS power_w,
    CASE WHEN k.is_free THEN 32 WHEN k.is_sick THEN coalesce(k.temp_c, 62) ELSE 62 END
    + hash(k.ts, k.device) % 5 AS temp_c,
    CASE WHEN k.is_sick THEN coalesce(k.sm_clock_mhz, 1755) ELSE 1755 END AS sm_clock_mhz,
    CASE
        WHEN k.is_sick AND k.throttle_mask > 0 THEN k.throttle_mask
        WHEN hash(k.device, epoch(k.ts)::BIGINT // 3600) % 40 = 0 THEN 4
        ELSE 0
    END AS throttle_mask,
    CASE WHEN k.is_sick THEN k.xid ELSE 0 END AS xid,
    CASE WHEN k.is_sick THEN k.ecc_dbe ELSE 0 END AS ecc_dbe,
    CASE WHEN k.is_sick THEN k.remapped_uncorrectable ELSE 0 END AS remapped_uncorrectable,
    CASE
        WHEN k.is_sick
            THEN k.nvlink_crc * least(1 + epoch(k.ts - k.failed_at)::BIGINT // 60, 10)
        ELSE 0
    END AS nvlink_crc,
    0 AS nvlink_replay,
    0 AS pcie_replay,
    CASE WHEN k.is_sick THEN k.row_remap_failure ELSE 0 END AS row_remap_failure,
    CASE WHEN k.is_sick THEN k.row_remap_pending ELSE 0 END AS row_remap_pending
FROM struck AS k
LEFT JOIN failures AS g ON k.node = g.node AND k.slot = g.slot AND g.lost = 'gpu'
WHERE g.failed_at IS null OR k.ts < g.failed_at + INTERVAL 2 MINUTE
ORDER BY k.device, k.ts
