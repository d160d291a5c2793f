-- Events of the subject: pods, the cluster's events about them, findings, incidents, and actions.
WITH pods AS (
    SELECT p.*
    FROM pod_owners AS p
    WHERE
        ($cluster::VARCHAR IS null OR p.cluster = $cluster)
        AND p.created_at < $until
        AND p.last_seen >= $since
        AND (
            $workload::VARCHAR IS null
            OR p.namespace || '/' || p.workload_kind || '/' || p.workload = $workload
        )
        AND ($node::VARCHAR IS null OR p.node = $node)
        AND (
            $device::VARCHAR IS null
            OR EXISTS (
                SELECT 1
                FROM allocation AS a
                WHERE
                    a.cluster = p.cluster
                    AND a.pod_uid = p.uid
                    AND a.device = $device
                    AND a.start < $until
                    AND coalesce(a."end", $until::TIMESTAMP) > $since
            )
        )
        AND p.gpu_request > 0
),

findings AS (
    SELECT f.*
    FROM finding AS f
    WHERE
        $device::VARCHAR IS null
        AND ($cluster::VARCHAR IS null OR f.cluster = $cluster)
        AND CASE
            WHEN $workload::VARCHAR IS NOT null
                THEN f.namespace || '/' || f.workload_kind || '/' || f.workload = $workload
            ELSE f.workload_kind = 'Node' AND f.workload = $node
        END
),

incidents AS (
    SELECT i.*
    FROM incident AS i
    WHERE
        ($cluster::VARCHAR IS null OR i.cluster = $cluster)
        AND (
            $workload::VARCHAR IS null
            OR list_contains(from_json(i.workloads, '["VARCHAR"]'), $workload)
        )
        AND (
            $node::VARCHAR IS null OR list_contains(from_json(i.nodes, '["VARCHAR"]'), $node)
        )
        AND (
            $device::VARCHAR IS null
            OR list_contains(from_json(i.devices, '["VARCHAR"]'), $device)
        )
),

happened AS (
    SELECT
        created_at AS at,
        'pod created' AS kind,
        pod AS detail,
        null::VARCHAR AS incident,
        null::VARCHAR AS finding
    FROM pods
    UNION ALL BY NAME
    SELECT
        coalesce(scheduled_at, started_at) AS at,
        'pod placed' AS kind,
        pod || coalesce(' on ' || node, '') AS detail,
        null AS incident,
        null AS finding
    FROM pods
    UNION ALL BY NAME
    SELECT
        coalesce(finished_at, deleted_at) AS at,
        'pod ended' AS kind,
        pod || ' (' || coalesce(phase, 'phase unknown') || ')' AS detail,
        null AS incident,
        null AS finding
    FROM pods
    UNION ALL BY NAME
    SELECT
        e.ts AS at,
        e.reason AS kind,
        concat_ws(': ', e.kind || ' ' || e.name, e.message) AS detail,
        null AS incident,
        null AS finding
    FROM event AS e
    WHERE
        ($cluster::VARCHAR IS null OR e.cluster = $cluster)
        AND e.reason NOT IN ('Scheduled', 'Started', 'Pulled', 'Pulling', 'Created')
        AND (
            (e.kind = 'Node' AND e.name = $node)
            OR (
                $workload::VARCHAR IS NOT null
                AND e.namespace || '/' || e.kind || '/' || e.name = $workload
            )
            OR (
                e.kind = 'Pod'
                AND (e.cluster, e.namespace, e.name) IN (
                    SELECT (p.cluster, p.namespace, p.pod) FROM pods AS p
                )
            )
        )
    UNION ALL BY NAME
    SELECT
        found_at AS at,
        'finding' AS kind,
        kind || ' by ' || analyzer || ': ' || coalesce(document ->> '$.details.why', id) AS detail,
        null AS incident,
        id AS finding
    FROM findings
    UNION ALL BY NAME
    SELECT
        i.start AS at,
        'incident' AS kind,
        i.cause || ', ' || i.step || ': ' || i.why AS detail,
        i.id AS incident,
        null AS finding
    FROM incidents AS i
    UNION ALL BY NAME
    SELECT
        a.ts AS at,
        'action: ' || a.kind AS kind,
        concat_ws(' ', a.about, 'by', a.actor) AS detail,
        null AS incident,
        null AS finding
    FROM action AS a
    WHERE
        (a.document ->> '$.finding') IN (SELECT f.id FROM findings AS f)
        OR a.about IN (SELECT f.id FROM findings AS f)
    UNION ALL BY NAME
    SELECT
        s.start AS at,
        'action: ' || coalesce(s.verb, 'done') AS kind,
        s.action || coalesce(' of policy ' || s.policy, '') AS detail,
        null AS incident,
        null AS finding
    FROM saving AS s
    WHERE s.namespace || '/' || s.workload_kind || '/' || s.workload = $workload
)

SELECT
    h.at,
    h.kind,
    h.detail,
    h.incident,
    h.finding
FROM happened AS h
WHERE h.at >= $since AND h.at <= $until
ORDER BY h.at DESC, h.kind ASC, h.detail ASC
LIMIT $most
