-- Events of its nodes and of the pods of its workloads, the oldest first.
SELECT
    e.ts AS at,
    e.kind || ' ' || e.reason AS kind,
    concat_ws(': ', e.name, e.message) AS detail
FROM event AS e
WHERE
    e.cluster = $cluster
    AND e.ts >= $since
    AND e.ts < $until
    AND (
        (e.kind = 'Node' AND list_contains($nodes, e.name))
        OR (
            e.kind = 'Pod'
            AND (e.namespace, e.name) IN (
                SELECT (p.namespace, p.pod)
                FROM pod_owners AS p
                WHERE
                    p.cluster = $cluster
                    AND list_contains(
                        $workloads, p.namespace || '/' || p.workload_kind || '/' || p.workload
                    )
            )
        )
    )
ORDER BY e.ts ASC, kind ASC, detail ASC
LIMIT $most
