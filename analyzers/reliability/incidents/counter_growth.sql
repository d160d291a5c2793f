-- Memory errors that were counted in the window: the first sample after each counter rose. A
-- counter above 0 before the window is old. `row_remap_failure` is a state: it counts as it is.
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
        row_remap_failure
    FROM sample
    WHERE
        ts >= $since
        AND ts < $until
        AND (ecc_dbe > 0 OR remapped_uncorrectable > 0 OR row_remap_failure > 0)
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
        row_remap_failure > coalesce(lag(row_remap_failure) OVER w, 0) AS remap_failed
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
    coalesce(g.remap_failed, false) AS remap_failed
FROM grown AS g
INNER JOIN first_samples AS f ON g.cluster = f.cluster AND g.device = f.device
WHERE
    (g.ecc_growth AND f.first_ts < g.ts)
    OR (g.remap_growth AND f.first_ts < g.ts)
    OR g.remap_failed
ORDER BY ALL
