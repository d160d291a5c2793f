-- The eras of nodes (`observed`) in order; the newest was last observed when the node was.
SELECT
    e.cluster,
    e.node,
    e.first_seen,
    CASE WHEN e.valid_to IS null THEN greatest(e.last_seen, n.last_seen) ELSE e.last_seen END
        AS last_seen,
    e.born_at,
    e.uid,
    e.provider,
    e.region,
    e.zone,
    e.instance_type,
    e.capacity_type,
    e.pool,
    e.gpu_count,
    e.gpu_allocatable,
    e.gpu_model
FROM every_era AS e
SEMI JOIN observed AS o ON e.cluster = o.cluster AND e.node = o.node
LEFT JOIN node AS n ON e.cluster = n.cluster AND e.node = n.node
ORDER BY e.cluster, e.node, e.valid_from
