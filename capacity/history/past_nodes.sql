-- Nodes with GPUs that existed in the window, in their last observed state. `unseen` is true where
-- the last list of nodes does not contain the node.
WITH last_nodes AS (
    SELECT
        cluster,
        max(last_seen) AS last_list
    FROM node
    GROUP BY cluster
)

SELECT
    n.cluster,
    n.node,
    coalesce(n.gpu_model, '') AS gpu_model,
    coalesce(n.gpu_allocatable, n.gpu_count)::INTEGER AS gpus,
    n.cpu_milli::BIGINT AS cpu_milli,
    n.memory_bytes::BIGINT AS memory_bytes,
    coalesce(n.sharing, 'none') AS sharing,
    coalesce(n.unschedulable, false) AS unschedulable,
    n.labels,
    n.taints,
    epoch(n.first_seen) AS first_s,
    epoch(n.last_seen) AS last_s,
    coalesce(n.last_seen < l.last_list - INTERVAL 10 MINUTE, false) AS unseen
FROM node AS n
INNER JOIN last_nodes AS l ON n.cluster = l.cluster
WHERE
    n.gpu_count > 0
    AND coalesce(n.first_seen, $until::TIMESTAMP) <= $until::TIMESTAMP
    AND coalesce(n.last_seen, $since::TIMESTAMP) >= $since::TIMESTAMP
    AND ($cluster::VARCHAR IS null OR n.cluster = $cluster)
ORDER BY n.cluster, n.node
