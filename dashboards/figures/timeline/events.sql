-- What happened to the subject: pods, what the cluster said of them, findings, and what was done.
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

happened AS (
    SELECT
        created_at AS moment,
        'pod created' AS kind,
        pod AS what
    FROM pods
    UNION ALL
    SELECT
        coalesce(scheduled_at, started_at) AS moment,
        'pod placed' AS kind,
        pod || coalesce(' on ' || node, '') AS what
    FROM pods
    UNION ALL
    SELECT
        coalesce(finished_at, deleted_at) AS moment,
        'pod ended' AS kind,
        pod || ' (' || coalesce(phase, 'phase unknown') || ')' AS what
    FROM pods
    UNION ALL
    SELECT
        e.ts AS moment,
        e.reason AS kind,
        concat_ws(': ', e.kind || ' ' || e.name, e.message) AS what
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
    UNION ALL
    SELECT
        found_at AS moment,
        'finding' AS kind,
        kind || ' by ' || analyzer || ': ' || coalesce(document ->> '$.details.why', id) AS what
    FROM findings
    UNION ALL
    SELECT
        a.ts AS moment,
        'action: ' || a.kind AS kind,
        concat_ws(' ', a.about, 'by', a.actor) AS what
    FROM action AS a
    WHERE
        (a.document ->> '$.finding') IN (SELECT f.id FROM findings AS f)
        OR a.about IN (SELECT f.id FROM findings AS f)
    UNION ALL
    SELECT
        s.start AS moment,
        'action: ' || coalesce(s.verb, 'done') AS kind,
        s.action || coalesce(' of policy ' || s.policy, '') AS what
    FROM saving AS s
    WHERE s.namespace || '/' || s.workload_kind || '/' || s.workload = $workload
)

SELECT
    moment,
    kind,
    what
FROM happened
WHERE moment >= $since AND moment <= $until
ORDER BY moment DESC, kind ASC, what ASC
LIMIT $most
