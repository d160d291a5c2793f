-- When a node had a pod whose request of GPUs the collector could not read: that pod may hold any
-- of the node's devices, so none of them is known to be free. A pod that is still there was seen by
-- the last poll.
WITH pods AS (
    SELECT
        cluster,
        node,
        coalesce(scheduled_at, started_at, created_at, first_seen) AS from_at,
        coalesce(finished_at, last_seen + INTERVAL 10 MINUTE) AS to_at
    FROM pod
    WHERE
        node IS NOT null AND gpu_request IS null
        AND last_seen > $since::TIMESTAMP - INTERVAL 10 MINUTE
        AND contains(annotations, '"fallow.dev/unreadable":')
        AND (annotations ->> '$."fallow.dev/unreadable"') IS NOT null
)

SELECT
    s.device_id,
    p.from_at,
    p.to_at
FROM pods AS p
INNER JOIN spans AS s ON p.cluster = s.cluster AND p.node = s.node
WHERE p.from_at < $until AND p.to_at > $since
GROUP BY s.device_id, p.from_at, p.to_at
