-- When nodes took no pods: from an event that says that they are not ready, or go, until they, or
-- new ones of their names, were ready; and how many GPUs fewer than at last they could allocate,
-- and when. What did not come back is in the last observation of its node. A node is not ready 50 s
-- before it is reported so (node-monitor-grace-period of Kubernetes).
WITH changes AS (
    SELECT
        cluster,
        name AS node,
        if(reason = 'NodeNotReady', ts - INTERVAL 50 SECOND, ts) AS start,
        min(ts) FILTER (WHERE reason = 'NodeReady') OVER (
            PARTITION BY cluster, name ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS ready_at,
        reason = 'NodeReady' AS ready
    FROM event
    WHERE
        kind = 'Node'
        AND reason IN (
            'NodeReady', 'NodeNotReady', 'NodeShutdown', 'Shutdown', 'Rebooted', 'SpotInterruption',
            'SpotInterrupted', 'PreemptScheduled', 'NodeTermination', 'Preempted'
        )
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
)

SELECT
    cluster,
    node,
    epoch(min(start)) AS start_s,
    epoch(ready_at) AS end_s,
    null::INTEGER AS gpus
FROM changes
WHERE NOT ready AND ready_at > $since AND start < $until
GROUP BY cluster, node, ready_at
UNION ALL BY NAME
SELECT
    e.cluster,
    e.node,
    epoch(e.valid_from) AS start_s,
    epoch(e.valid_to) AS end_s,
    coalesce(n.gpu_allocatable, n.gpu_count) - e.gpu_allocatable AS gpus
FROM era AS e
INNER JOIN node AS n ON e.cluster = n.cluster AND e.node = n.node
WHERE
    e.valid_to > $since
    AND e.valid_from < $until
    AND e.gpu_allocatable < coalesce(n.gpu_allocatable, n.gpu_count)
    AND ($cluster::VARCHAR IS null OR e.cluster = $cluster)
ORDER BY ALL
