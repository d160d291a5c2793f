-- One day of samples of every GPU, one a minute, with what its failures leave: XIDs and counters
-- that rise; a GPU that fell off the bus (class 0) and a node that is lost (3) are silent then.
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

sick AS (
    SELECT
        node,
        slot,
        min(failed_at) FILTER (WHERE class = 0) AS gone_at,
        min(failed_at) FILTER (WHERE class = 1) AS ecc_at,
        min(failed_at) FILTER (WHERE class = 2) AS link_at,
        min(failed_at) FILTER (WHERE class = 4) AS xid_at
    FROM failures
    GROUP BY node, slot
),

lost AS (
    SELECT
        node,
        min(failed_at) AS lost_at
    FROM failures
    WHERE class = 3
    GROUP BY node
)

SELECT
    'bench' AS cluster,
    k.ts,
    k.device,
    'node-' || k.node AS node,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    'team-' || (k.node // 8) % 40 AS namespace,
    'train-' || k.node // 8 || '-' || date_diff('day', TIMESTAMP '2026-10-01', k.ts) || '-'
    || k.node % 8 AS pod,
    60 AS interval_s,
    'exporters' AS source,
    0.9 AS gr_engine_active,
    0.7 AS sm_active,
    0.3 AS tensor_active,
    550 + hash(k.device, k.ts) % 60 AS power_w,
    62 + hash(k.ts, k.device) % 5 AS temp_c,
    1755 AS sm_clock_mhz,
    CASE WHEN hash(k.device, epoch(k.ts)::BIGINT // 3600) % 40 = 0 THEN 4 ELSE 0 END
        AS throttle_mask,
    CASE
        WHEN k.ts >= s.ecc_at THEN 48 WHEN k.ts >= s.link_at THEN 74 WHEN k.ts >= s.xid_at THEN 94
        ELSE 0
    END AS xid,
    CASE WHEN k.ts >= s.ecc_at THEN 2 ELSE 0 END AS ecc_dbe,
    CASE WHEN k.ts >= s.link_at THEN epoch(k.ts - s.link_at)::BIGINT ELSE 0 END AS nvlink_crc,
    CASE WHEN k.ts >= s.link_at THEN epoch(k.ts - s.link_at)::BIGINT // 60 ELSE 0 END
        AS nvlink_replay,
    0 AS pcie_replay,
    0 AS row_remap_failure,
    0 AS row_remap_pending
FROM ticks AS k
LEFT JOIN sick AS s ON k.node = s.node AND k.slot = s.slot
LEFT JOIN lost AS l ON k.node = l.node
WHERE (s.gone_at IS null OR k.ts < s.gone_at) AND (l.lost_at IS null OR k.ts < l.lost_at)
ORDER BY k.device, k.ts
