-- Nodes with GPUs in the window: their capacity, location and names.
SELECT
    cluster,
    node,
    pool,
    provider,
    region,
    instance_type,
    capacity_type,
    cpu_milli,
    memory_bytes,
    gpu_resource,
    gpu_count,
    gpu_model,
    gpu_replicas,
    sharing,
    labels ->> '$."kubernetes.io/arch"' AS arch,
    labels,
    taints,
    greatest(coalesce(first_seen, $since::TIMESTAMP), $since::TIMESTAMP) AS start,
    least(last_seen, $until::TIMESTAMP) AS "end"
FROM node
WHERE
    gpu_count > 0
    AND coalesce(first_seen, $since::TIMESTAMP) < $until::TIMESTAMP
    AND last_seen > $since::TIMESTAMP
ORDER BY cluster, node
