-- The pods on nodes with GPUs at the last time, and which devices were allocated to each.
WITH times AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($times) AS at,
        unnest($stills) AS still
),

there AS (
    SELECT
        p.*,
        m.at,
        m.still
    FROM times AS m
    INNER JOIN pod AS p ON m.cluster = p.cluster
    SEMI JOIN node AS n ON p.cluster = n.cluster AND p.node = n.node AND n.gpu_count > 0
    WHERE
        m.still AND (
            coalesce(p.phase, '') NOT IN ('Succeeded', 'Failed')
            OR (p.labels ->> '$.placement') = 'imported'
        )
        OR NOT m.still
        AND m.at >= coalesce(p.scheduled_at, p.started_at, p.created_at, p.first_seen)
        AND m.at < coalesce(p.finished_at, p.last_seen + to_seconds($unseen_s))
),

holds AS (
    SELECT
        a.cluster,
        a.pod_uid,
        list(a.device ORDER BY a.device) AS allocated,
        list(a.share ORDER BY a.device) AS shares
    FROM times AS m
    INNER JOIN allocation AS a
        ON m.cluster = a.cluster AND m.at >= a.start AND m.at < a."end"
    GROUP BY a.cluster, a.pod_uid
)

SELECT
    t.cluster,
    t.uid,
    t.namespace,
    t.pod,
    t.node,
    t.owner_kind,
    t.workload_kind,
    t.workload,
    t.labels,
    t.annotations,
    t.constraints,
    t.devices,
    h.allocated,
    h.shares,
    coalesce(t.gpu_request, 0) AS gpus,
    coalesce(t.cpu_request_milli, 0) AS cpu_milli,
    coalesce(t.memory_request_bytes, 0) AS memory_bytes
FROM there AS t
LEFT JOIN holds AS h ON t.cluster = h.cluster AND t.uid = h.pod_uid
ORDER BY t.cluster, t.node, t.uid
