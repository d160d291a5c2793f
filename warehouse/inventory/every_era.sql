-- The eras of all nodes. A node that was stored before eras were has one.
SELECT
    cluster,
    node,
    valid_from,
    valid_to,
    first_seen,
    last_seen,
    born_at,
    uid,
    provider,
    region,
    zone,
    instance_type,
    capacity_type,
    pool,
    gpu_count,
    gpu_allocatable,
    gpu_model
FROM era
UNION ALL
SELECT
    n.cluster,
    n.node,
    coalesce(n.first_seen, n.last_seen) AS valid_from,
    null AS valid_to,
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
    n.gpu_model
FROM node AS n
ANTI JOIN era AS e ON n.cluster = e.cluster AND n.node = e.node
