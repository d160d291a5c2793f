-- Pods of nodes with GPUs, and pods that request GPUs and have no node, during their lifetime in
-- the window. A pod in the last poll of its cluster lives until the window's end; one of an
-- imported placement has no known end.
WITH gpu_nodes AS (
    SELECT
        cluster,
        node,
        gpu_model
    FROM node
    WHERE gpu_count > 0
),

lives AS (
    SELECT
        p.*,
        b.gpu_model,
        l.last_list,
        coalesce((p.labels ->> '$.placement') = 'imported', false) AS pictured,
        coalesce(p.scheduled_at, p.started_at, p.created_at, p.first_seen) AS start,
        coalesce(
            p.finished_at,
            CASE
                WHEN p.last_seen >= l.last_list - INTERVAL 10 MINUTE THEN $until::TIMESTAMP
                ELSE p.last_seen
            END
        ) AS "end"
    FROM pod_owners AS p
    INNER JOIN last_lists AS l ON p.cluster = l.cluster
    LEFT JOIN gpu_nodes AS b ON p.cluster = b.cluster AND p.node = b.node
    WHERE b.node IS NOT null OR (p.node IS null AND coalesce(p.gpu_request, 0) > 0)
)

SELECT
    cluster,
    uid,
    namespace,
    pod,
    node,
    phase,
    coalesce(owner_kind = 'DaemonSet' OR workload_kind = 'DaemonSet', false) AS daemon,
    workload_kind,
    workload,
    gpu_resource,
    coalesce(gpu_request, CASE WHEN gpu_resource IS null THEN 0 END) AS gpu_request,
    gpu_mem_request_bytes,
    gpu_core_request_pct,
    cpu_request_milli,
    memory_request_bytes,
    gpu_model,
    labels ->> '$.gpu_spec' AS gpu_spec,
    annotations ->> '$."fallow.selector"' AS selector,
    annotations ->> '$."nvidia.com/use-gputype"' AS gpu_type,
    CASE WHEN pictured THEN $since::TIMESTAMP ELSE greatest(start, $since::TIMESTAMP) END AS start,
    CASE WHEN pictured THEN $until::TIMESTAMP ELSE least("end", $until::TIMESTAMP) END AS "end"
FROM lives
WHERE pictured OR (start < $until::TIMESTAMP AND "end" > $since::TIMESTAMP AND "end" > start)
ORDER BY cluster, uid
