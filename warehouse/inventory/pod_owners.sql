-- Pods under the owner that ledger, pages and advice show. A bare pod is its own owner, of kind
-- Pod, because its inventory says so. An owner that no inventory resolves is of kind `unresolved`;
-- its name is that of the object directly above the pod, else of the pod itself.
-- `paying_team` is the pod's own team, else the team of other pods of its workload, else the
-- namespace. A pod that was listed before it had a team label has no team of its own. `team` stays
-- as it was listed.
WITH known_teams AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        arg_max(team, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS team
    FROM pod
    WHERE team IS NOT null AND workload IS NOT null
    GROUP BY cluster, namespace, workload_kind, workload
)

SELECT
    p.* REPLACE ( -- noqa: AM04
        coalesce(p.workload_kind, 'unresolved') AS workload_kind,
        coalesce(p.workload, p.owner_name, p.pod) AS workload
    ),
    coalesce(p.team, t.team, p.namespace) AS paying_team
FROM pod AS p
LEFT JOIN known_teams AS t
    ON
        p.cluster = t.cluster AND p.namespace = t.namespace
        AND p.workload_kind = t.workload_kind AND p.workload = t.workload
