-- Pods that existed between two times: those with GPUs, and those of the workloads in the
-- parameters. A pod without an observed end exists until ten minutes after it was last seen, or
-- until the next pod of its name was created: two pods never have one name at the same time.
WITH begun AS (
    SELECT
        *,
        coalesce(created_at, scheduled_at, started_at, first_seen) AS begin_at
    FROM pod_owners
),

seen AS (
    SELECT
        *,
        least(
            coalesce(finished_at, last_seen + INTERVAL 10 MINUTE),
            nullif(
                lead(begin_at) OVER (PARTITION BY cluster, namespace, pod ORDER BY begin_at, uid),
                begin_at
            )
        ) AS end_at
    FROM begun
)

SELECT
    cluster,
    uid,
    namespace,
    pod,
    node,
    phase,
    workload_kind,
    workload,
    workload_uid,
    team,
    queue,
    priority_class,
    gpu_resource,
    coalesce(gpu_request, 0.0) AS gpus,
    cpu_request_milli,
    memory_request_bytes,
    labels,
    annotations,
    epoch_us(begin_at) AS begin_us,
    epoch_us(end_at) AS end_us,
    epoch_us(coalesce(scheduled_at, started_at)) AS placed_us,
    -- The API's clock against ours: a pod cannot be created after it was first seen.
    epoch_us(created_at) - epoch_us(first_seen) AS ahead_us,
    priority,
    unscheduled,
    constraints,
    epoch_us(annotations_from) AS marks_us
FROM seen
WHERE
    -- By an API clock that is ahead of ours a pod may begin after the window in which it was seen.
    least(begin_at, coalesce(first_seen, begin_at)) < $until AND end_at >= $since
    AND (
        gpu_request > 0
        OR contains(annotations, '"fallow.dev/unreadable":')
        OR concat_ws('/', cluster, namespace, workload_kind, workload) IN (SELECT unnest($named))
    )
ORDER BY cluster, namespace, pod, uid
