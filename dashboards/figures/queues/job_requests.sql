-- Jobs that waited before they had pods, from when until when (null = they still wait): until their
-- first pod was created, or until their object was last seen. A Workload of Kueue precedes a
-- PodGroup of the same job; what contradicts itself, and what requests an unknown number of GPUs,
-- counts for nothing.
WITH last_jobs AS (
    SELECT
        cluster,
        max(last_seen) - INTERVAL 15 MINUTE AS newest
    FROM pending_workload
    GROUP BY cluster
),

queued AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        state,
        last_seen,
        coalesce(team, namespace) AS team,
        try_cast(request ->> '$.gpus' AS DOUBLE) AS gpus,
        coalesce(queued_at, created_at, first_seen) AS created_at
    FROM pending_workload
    QUALIFY
        dense_rank() OVER (
            PARTITION BY cluster, namespace, workload_kind, workload
            ORDER BY kind <> 'Workload'
        ) = 1
),

first_pods AS (
    SELECT
        q.cluster,
        q.namespace,
        q.workload_kind,
        q.workload,
        q.created_at,
        min(p.created_at) AS first_pod_at
    FROM queued AS q
    INNER JOIN pod_owners AS p
        ON
            q.cluster = p.cluster
            AND q.namespace = p.namespace
            AND q.workload_kind = p.workload_kind
            AND q.workload = p.workload
            AND (
                q.created_at <= p.created_at
                OR (p.finished_at IS null AND p.last_seen >= q.last_seen - INTERVAL 15 MINUTE)
            )
    GROUP BY ALL
)

SELECT
    q.cluster,
    q.gpus,
    q.created_at,
    CASE
        WHEN f.first_pod_at IS NOT null THEN greatest(f.first_pod_at, q.created_at)
        WHEN q.state NOT IN ('pending', 'reserved') OR q.last_seen < l.newest THEN q.last_seen
    END AS waited_until
FROM queued AS q
INNER JOIN last_jobs AS l ON q.cluster = l.cluster
LEFT JOIN first_pods AS f
    ON
        q.cluster = f.cluster
        AND q.namespace = f.namespace
        AND q.workload_kind = f.workload_kind
        AND q.workload = f.workload
        AND q.created_at = f.created_at
WHERE
    q.gpus > 0
    AND q.created_at < $until
    -- Without a pod nothing says when one that waits no more had started.
    AND (f.first_pod_at IS NOT null OR q.state IN ('pending', 'reserved'))
    AND ($cluster::VARCHAR IS null OR q.cluster = $cluster)
    AND ($team::VARCHAR IS null OR q.team = $team)
    AND ($namespace::VARCHAR IS null OR q.namespace = $namespace)
