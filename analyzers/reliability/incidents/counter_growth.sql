-- Errors of memory and links that were counted in the window: the first sample after each counter
-- rose. A counter above 0 before the window is old. `row_remap_failure` and `row_remap_pending` are
-- states: they count as they are.
WITH raised AS (
    SELECT
        cluster,
        device,
        ts,
        coalesce(node, '') AS node,
        coalesce(namespace, '') AS namespace,
        coalesce(pod, '') AS pod,
        ecc_dbe,
        remapped_uncorrectable,
        row_remap_failure,
        row_remap_pending,
        nvlink_crc,
        nvlink_replay,
        pcie_replay
    FROM sample
    WHERE
        ts >= $since
        AND ts < $until
        AND (
            ecc_dbe > 0
            OR remapped_uncorrectable > 0
            OR row_remap_failure > 0
            OR row_remap_pending > 0
            OR nvlink_crc > 0
            OR nvlink_replay > 0
            OR pcie_replay > 0
        )
),

first_samples AS (
    SELECT
        cluster,
        device,
        min(ts) AS first_ts
    FROM sample
    WHERE ts >= $since AND ts < $until
    GROUP BY cluster, device
),

grown AS (
    SELECT
        *,
        ecc_dbe > coalesce(lag(ecc_dbe) OVER w, 0) AS ecc_growth,
        remapped_uncorrectable > coalesce(lag(remapped_uncorrectable) OVER w, 0) AS remap_growth,
        row_remap_failure > coalesce(lag(row_remap_failure) OVER w, 0) AS remap_failed,
        row_remap_pending > coalesce(lag(row_remap_pending) OVER w, 0) AS remap_pending,
        nvlink_crc > coalesce(lag(nvlink_crc) OVER w, 0) AS nvlink_crc_growth,
        nvlink_replay > coalesce(lag(nvlink_replay) OVER w, 0) AS nvlink_replay_growth,
        pcie_replay > coalesce(lag(pcie_replay) OVER w, 0) AS pcie_replay_growth
    FROM raised
    WINDOW w AS (PARTITION BY cluster, device ORDER BY ts)
)

SELECT
    g.cluster,
    g.device,
    g.ts AS at,
    g.node,
    g.namespace,
    g.pod,
    coalesce(g.ecc_growth AND f.first_ts < g.ts, false) AS ecc_growth,
    coalesce(g.remap_growth AND f.first_ts < g.ts, false) AS remap_growth,
    coalesce(g.nvlink_crc_growth AND f.first_ts < g.ts, false) AS nvlink_crc_growth,
    coalesce(g.nvlink_replay_growth AND f.first_ts < g.ts, false) AS nvlink_replay_growth,
    coalesce(g.pcie_replay_growth AND f.first_ts < g.ts, false) AS pcie_replay_growth,
    coalesce(g.remap_pending, false) AS remap_pending,
    coalesce(g.remap_failed, false) AS remap_failed
FROM grown AS g
INNER JOIN first_samples AS f ON g.cluster = f.cluster AND g.device = f.device
WHERE
    (
        f.first_ts < g.ts
        AND (
            g.ecc_growth
            OR g.remap_growth
            OR g.nvlink_crc_growth
            OR g.nvlink_replay_growth
            OR g.pcie_replay_growth
        )
    )
    OR g.remap_pending
    OR g.remap_failed
ORDER BY ALL
