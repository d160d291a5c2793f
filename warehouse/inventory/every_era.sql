-- The eras of all nodes. A node that was stored before eras were has one.
SELECT * FROM era -- noqa: AM04
UNION ALL BY NAME
SELECT
    n.cluster,
    n.node,
    coalesce(n.first_seen, n.last_seen) AS valid_from,
    coalesce(n.first_seen, n.last_seen) AS first_seen,
    n.last_seen,
    coalesce(n.first_seen, n.last_seen) AS born_at,
    n.uid,
    n.provider,
    n.region,
    n.zone,
    n.instance_type,
    n.capacity_type,
    n.pool,
    n.gpu_count,
    n.gpu_allocatable,
    n.gpu_model,
    n.gpu_replicas
FROM node AS n
ANTI JOIN era AS e ON n.cluster = e.cluster AND n.node = e.node
