-- When devices are not known to be free. A node had a pod whose request of GPUs the collector could
-- not read: that pod may hold any of the node's devices, and the last poll saw it if it is still
-- there. Or an exporter names a pod that had ended, and the inventory is older than that: another
-- pod of its name may live.
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
),

lists AS (
    SELECT
        cluster,
        max(last_seen) + INTERVAL 10 MINUTE AS known_until
    FROM pod
    GROUP BY cluster
    HAVING known_until < $until
),

ended_pods AS (
    SELECT
        p.cluster,
        p.namespace,
        p.pod,
        any_value(l.known_until) AS known_until
    FROM pod AS p
    INNER JOIN lists AS l ON p.cluster = l.cluster
    GROUP BY p.cluster, p.namespace, p.pod
    HAVING bool_and(p.finished_at IS NOT null)
)

SELECT DISTINCT
    s.device_id,
    greatest(p.from_at, s.from_at) AS from_at,
    least(p.to_at, s.to_at) AS to_at
FROM pods AS p
INNER JOIN spans AS s
    ON
        p.cluster = s.cluster AND p.node = s.node
        AND p.from_at < s.to_at AND p.to_at > s.from_at
UNION
SELECT
    s.device_id,
    r.bucket AS from_at,
    r.bucket + INTERVAL 5 MINUTE AS to_at
FROM rollup_5m AS r
INNER JOIN ended_pods AS e
    ON
        r.cluster = e.cluster AND r.namespace = e.namespace AND r.pod = e.pod
        AND r.bucket >= e.known_until
INNER JOIN spans AS s ON r.cluster = s.cluster AND r.device = s.device
WHERE r.bucket >= $since AND r.bucket < $until
