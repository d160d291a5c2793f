-- Pods that requested GPUs within the window: when each was queued, placed and ended, and what it
-- requested. A time that no source knows is null. A Kueue workload is queued before it has pods.
-- A pod that the last list of its cluster contains has not ended. Its queue and its team are those
-- of when it was placed.
WITH evicted_pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        name
    FROM event
    WHERE kind = 'Pod' AND reason = 'Preempted'
),

times AS (
    SELECT
        p.*,
        coalesce(p.created_at, p.scheduled_at, p.first_seen) AS born,
        coalesce(
            p.scheduled_at, p.started_at, CASE WHEN p.node IS NOT null THEN p.first_seen END
        ) AS placed,
        coalesce(
            p.finished_at,
            CASE WHEN p.last_seen < l.last_list - INTERVAL 10 MINUTE THEN p.last_seen END
        ) AS ended,
        e.name IS NOT null AS evicted
    FROM pod_owners AS p
    INNER JOIN last_lists AS l ON p.cluster = l.cluster
    LEFT JOIN evicted_pods AS e
        ON p.cluster = e.cluster AND p.namespace = e.namespace AND p.pod = e.name
    WHERE p.gpu_request > 0
)

SELECT
    t.cluster,
    t.uid,
    coalesce(namespace, '') AS namespace,
    coalesce(pod, t.uid) AS pod,
    node,
    coalesce(phase, 'Unknown') AS phase,
    workload_kind,
    workload,
    workload_uid,
    coalesce(y.team, paying_team, '') AS team,
    coalesce(if(q.id IS null, queue, q.value), '') AS queue,
    priority_class,
    priority,
    coalesce(
        annotations ->> '$."scheduling.k8s.io/group-name"', annotations ->> '$."pod-group-name"', ''
    ) AS pod_group,
    coalesce(gpu_resource, '') AS gpu_resource,
    gpu_request::DOUBLE AS gpus,
    coalesce(cpu_request_milli, 0)::BIGINT AS cpu_milli,
    coalesce(memory_request_bytes, 0)::BIGINT AS memory_bytes,
    annotations,
    labels ->> '$.gpu_spec' AS gpu_spec,
    evicted,
    epoch(least(born, coalesce(
        try_cast(annotations ->> '$."fallow.queued-at"' AS TIMESTAMP), born
    ))) AS queued_s,
    (annotations ->> '$."fallow.queued-at"') IS NOT null AS queued_known,
    epoch(born) AS created_s,
    epoch(placed) AS placed_s,
    epoch(ended) AS ended_s
FROM times AS t
LEFT JOIN value_eras AS q
    ON
        q.kind = 'pod.queue' AND t.cluster = q.cluster AND t.uid = q.id
        AND coalesce(placed, $until::TIMESTAMP) >= q.holds_from
        AND coalesce(placed, $until::TIMESTAMP) < q.holds_to
LEFT JOIN paying_teams AS y
    ON
        t.cluster = y.cluster AND t.uid = y.uid
        AND coalesce(placed, $until::TIMESTAMP) >= y.holds_from
        AND coalesce(placed, $until::TIMESTAMP) < y.holds_to
WHERE
    born < $until::TIMESTAMP
    AND coalesce(ended, $until::TIMESTAMP) > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS null OR t.cluster = $cluster)
ORDER BY born, t.cluster, namespace, pod, t.uid
