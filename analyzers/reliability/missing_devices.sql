-- Nodes with fewer GPUs in telemetry than they have: `expected` by the device plug-in and its
-- label, `allocatable` by the kubelet, `visible` by the exporter. Left out: nodes where MIG
-- instances or HAMi's shares hide GPUs, and nodes with a silent exporter (a node's newest row must
-- be as new as its cluster's).
WITH there AS (
    SELECT
        cluster,
        node,
        count(*) FILTER (WHERE parent IS NOT null) AS instances,
        max(last_seen) AS newest,
        greatest(3 * max(interval_s), 300) AS tolerance_s
    FROM device
    WHERE first_seen < $until
    GROUP BY cluster, node
),

fresh AS (
    SELECT
        *,
        max(newest) OVER (PARTITION BY cluster) AS cluster_newest
    FROM there
),

counted AS (
    SELECT
        f.cluster,
        f.node,
        count(*) FILTER (WHERE d.last_seen >= f.newest - to_seconds(f.tolerance_s)) AS visible,
        max(d.last_seen) FILTER (WHERE d.last_seen < f.newest - to_seconds(f.tolerance_s))
            AS last_of_missing
    FROM fresh AS f
    INNER JOIN device AS d ON f.cluster = d.cluster AND f.node = d.node
    WHERE
        f.instances = 0
        AND f.newest > $since
        AND f.newest >= f.cluster_newest - to_seconds(f.tolerance_s)
    GROUP BY f.cluster, f.node
),

billed AS (
    SELECT
        cluster,
        node,
        sum(gpu_seconds) / 3600 AS gpu_hours,
        CASE WHEN bool_and(priced) THEN sum(usd) END AS usd,
        coalesce(sum(gpu_seconds) FILTER (WHERE state = 'unavailable'), 0) / 3600
            AS unavailable_hours
    FROM ledger
    WHERE bucket >= $since AND bucket < $until AND contains(device, '/untracked')
    GROUP BY cluster, node
)

SELECT
    n.cluster,
    n.node,
    n.gpu_count AS expected,
    n.gpu_allocatable AS allocatable,
    c.visible,
    c.last_of_missing,
    coalesce(b.gpu_hours, 0) AS gpu_hours,
    coalesce(b.unavailable_hours, 0) AS unavailable_hours,
    CASE WHEN b.node IS null THEN 0 ELSE b.usd END AS usd
FROM node AS n
INNER JOIN counted AS c ON n.cluster = c.cluster AND n.node = c.node
LEFT JOIN billed AS b ON n.cluster = b.cluster AND n.node = b.node
WHERE
    n.gpu_count > c.visible
    AND coalesce(n.sharing, 'none') NOT IN ('mig', 'hami')
    AND n.last_seen > $since
ORDER BY n.cluster, n.node
