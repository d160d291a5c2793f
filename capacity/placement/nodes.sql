-- Nodes that existed, in their last observed state.
SELECT
    cluster,
    node,
    uid,
    pool,
    capacity_type,
    cpu_milli,
    memory_bytes,
    gpu_count,
    gpu_model,
    sharing,
    ready,
    unschedulable,
    labels,
    taints,
    epoch_us(first_seen) AS first_us,
    epoch_us(last_seen) AS last_us
FROM node
WHERE coalesce(first_seen, $until) <= $until AND coalesce(last_seen, $since) >= $since
ORDER BY cluster, node
