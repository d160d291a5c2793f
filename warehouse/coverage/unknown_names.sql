-- Names that nothing explains, with the pods, nodes and GPUs that each concerns: resources that may
-- be accelerators, hosts that are no node of the inventory, pods that telemetry names and no
-- inventory has, pods whose owner is not known. Beside them the nodes whose GPUs independent
-- sources count differently (`count`), with the number that is paid and what speaks against it.
-- Devices are those of the last days of data of their cluster, objects those read since a time.
WITH newest AS (
    SELECT
        cluster,
        max(last_seen) AS last_seen
    FROM device
    WHERE $cluster IS NULL OR cluster = $cluster
    GROUP BY cluster
),

recent AS (
    SELECT
        d.cluster,
        d.device,
        coalesce(d.node, '?') AS node,
        coalesce(d.weight, 1) AS gpus
    FROM device AS d
    INNER JOIN newest AS w ON d.cluster = w.cluster
    WHERE d.last_seen >= w.last_seen - to_days($days)
),

allocated_devices AS (
    SELECT DISTINCT
        r.cluster,
        r.device,
        r.node,
        r.gpus,
        a.pod_uid,
        a.namespace,
        a.pod,
        a.workload_kind
    FROM recent AS r
    INNER JOIN newest AS w ON r.cluster = w.cluster
    INNER JOIN allocation AS a ON r.cluster = a.cluster AND r.device = a.device
    WHERE a."end" >= w.last_seen - to_days($days)
),

hosts AS (
    SELECT
        r.cluster,
        r.node,
        sum(r.gpus) AS gpus
    FROM recent AS r
    SEMI JOIN node AS k ON r.cluster = k.cluster AND k.gpu_count > 0
    ANTI JOIN node AS n ON r.cluster = n.cluster AND r.node = n.node
    GROUP BY r.cluster, r.node
),

rejected AS (
    SELECT
        cluster,
        kind,
        field,
        namespace,
        name,
        max(devices) AS gpus,
        arg_max(reason, last_seen) AS reason
    FROM rejection
    WHERE
        last_seen >= $since
        AND ($cluster IS NULL OR cluster = $cluster)
        AND name <> ''
        AND (kind = 'resource' OR (kind = 'node' AND field = 'gpu_count'))
    GROUP BY ALL
),

counted AS (
    SELECT
        n.cluster,
        n.node,
        n.gpu_count,
        'telemetry shows ' || count(DISTINCT coalesce(d.parent, d.device)) AS reason
    FROM node AS n
    INNER JOIN newest AS w ON n.cluster = w.cluster
    INNER JOIN device AS d
        ON
            n.cluster = d.cluster AND n.node = d.node
            AND d.last_seen >= w.last_seen - INTERVAL 10 MINUTE
    GROUP BY n.cluster, n.node, n.gpu_count
    HAVING count(DISTINCT coalesce(d.parent, d.device)) > n.gpu_count
    UNION ALL BY NAME
    SELECT
        r.cluster,
        n.node,
        n.gpu_count,
        r.reason
    FROM rejected AS r
    INNER JOIN node AS n ON r.cluster = n.cluster AND r.name = n.node
    WHERE r.kind = 'node'
),

names AS (
    SELECT
        cluster,
        'resource' AS kind,
        field AS name,
        count(*) FILTER (WHERE namespace <> '') AS pods,
        count(*) FILTER (WHERE namespace = '') AS nodes,
        coalesce(nullif(sum(gpus) FILTER (WHERE namespace = ''), 0), sum(gpus)) AS gpus,
        any_value(reason) AS reason
    FROM rejected
    WHERE kind = 'resource'
    GROUP BY cluster, field
    UNION ALL BY NAME
    SELECT
        h.cluster,
        'host' AS kind,
        h.node AS name,
        (
            SELECT count(DISTINCT p.pod_uid) FROM allocated_devices AS p
            WHERE p.cluster = h.cluster AND p.node = h.node
        ) AS pods,
        0 AS nodes,
        h.gpus,
        'it is no node of the inventory' AS reason
    FROM hosts AS h
    UNION ALL BY NAME
    SELECT
        h.cluster,
        'pod' AS kind,
        h.namespace || '/' || h.pod AS name,
        1 AS pods,
        count(DISTINCT h.node) AS nodes,
        sum(h.gpus) AS gpus,
        'telemetry names it, and no inventory has it' AS reason
    FROM allocated_devices AS h
    SEMI JOIN pod AS p ON h.cluster = p.cluster AND p.phase IS NOT NULL
    WHERE h.workload_kind = 'unresolved'
    GROUP BY h.cluster, h.namespace, h.pod
    UNION ALL BY NAME
    SELECT
        h.cluster,
        'owner' AS kind,
        h.namespace || '/' || h.pod AS name,
        1 AS pods,
        count(DISTINCT h.node) AS nodes,
        sum(h.gpus) AS gpus,
        'its owner is not known' AS reason
    FROM allocated_devices AS h
    INNER JOIN pod AS p ON h.cluster = p.cluster AND h.pod_uid = p.uid
    WHERE p.workload IS NULL AND p.finished_at IS NULL
    GROUP BY h.cluster, h.namespace, h.pod
    UNION ALL BY NAME
    SELECT
        cluster,
        'count' AS kind,
        node AS name,
        0 AS pods,
        1 AS nodes,
        any_value(gpu_count) AS gpus,
        string_agg(reason, '; ' ORDER BY reason) AS reason
    FROM counted
    GROUP BY cluster, node
)

SELECT
    cluster,
    kind,
    name,
    pods,
    nodes,
    round(coalesce(gpus, 0), 2) AS gpus,
    reason
FROM names
ORDER BY gpus DESC, pods DESC, kind ASC, name ASC
LIMIT $most
