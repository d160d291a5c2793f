-- Nodes with GPUs, by their inventory.
SELECT
    cluster,
    node,
    coalesce(pool, '') AS pool,
    coalesce(gpu_model, '') AS model,
    coalesce(gpu_count, 0) AS gpus,
    cpu_milli,
    memory_bytes,
    coalesce(zone, '') AS zone,
    coalesce(instance_type, '') AS instance_type,
    coalesce(capacity_type, '') AS capacity_type,
    taints,
    labels,
    coalesce(ready, true) AND NOT coalesce(unschedulable, false) AS open
FROM node
WHERE cluster IN (SELECT unnest($clusters)) AND coalesce(gpu_count, 0) > 0
ORDER BY cluster, node
