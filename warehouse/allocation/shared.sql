-- Pods that share a device by time slicing, MPS or a vGPU scheduler, as the exporter names them,
-- with the lifetimes in which they shared it, and the reason where one holds nothing (`refusal`, as
-- in `named.sql`).
WITH nodes AS (
    SELECT
        cluster,
        device,
        max(node) AS node,
        min(node) AS other_node
    FROM seen
    GROUP BY cluster, device
),

in_inventory AS (
    SELECT
        n.cluster,
        n.device,
        n.namespace,
        n.pod,
        n.share,
        n.alone,
        l.uid,
        coalesce(l.life_start, n.first_ts) AS start_at,
        CASE WHEN l.ended THEN l.life_end ELSE greatest(l.life_end, n.last_ts) END AS end_at,
        CASE
            WHEN l.requests_none THEN 'it requests no GPU'
            WHEN w.device IS NOT null THEN 'the GPU is not one of this node'
            WHEN i.node IS NOT null AND l.node NOT IN (d.node, d.other_node)
                THEN 'it does not run on the node of the GPU'
        END AS refusal
    FROM sharers AS n
    INNER JOIN lives AS l
        ON n.cluster = l.cluster AND n.namespace = l.namespace AND n.pod = l.pod
    LEFT JOIN nodes AS d ON n.cluster = d.cluster AND n.device = d.device
    LEFT JOIN node AS i ON d.cluster = i.cluster AND d.node = i.node
    LEFT JOIN misplaced AS w
        ON n.cluster = w.cluster AND n.device = w.device AND l.node = w.node
    WHERE
        coalesce(l.life_start, n.first_ts) < n.last_ts
        AND (NOT l.ended OR n.first_ts < l.life_end)
)

SELECT
    cluster,
    device,
    namespace,
    pod,
    share,
    alone,
    uid,
    start_at,
    end_at,
    refusal
FROM in_inventory
UNION ALL BY NAME
SELECT
    n.cluster,
    n.device,
    n.namespace,
    n.pod,
    n.share,
    n.alone,
    null AS uid,
    n.first_ts AS start_at,
    n.last_ts AS end_at,
    null AS refusal
FROM sharers AS n
ANTI JOIN in_inventory AS k
    ON
        n.cluster = k.cluster AND n.device = k.device
        AND n.namespace = k.namespace AND n.pod = k.pod
