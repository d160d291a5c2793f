-- Jobs that wait before they have pods: objects of Kueue, Volcano and scheduler-plugins that were
-- listed in the last ten minutes.
SELECT
    cluster,
    kind,
    namespace,
    name,
    workload_kind,
    workload,
    workload_uid,
    team,
    queue,
    priority_class,
    priority,
    state,
    condition,
    request,
    epoch_us(coalesce(queued_at, created_at, first_seen)) AS begin_us,
    -- The API's clock against ours: an object cannot be created after it was first seen.
    epoch_us(created_at) - epoch_us(first_seen) AS ahead_us
FROM pending_workload
WHERE
    state IN ('pending', 'reserved', 'contradictory')
    AND least(coalesce(created_at, first_seen), first_seen) < $until::TIMESTAMP
    AND last_seen >= $until::TIMESTAMP - INTERVAL 10 MINUTE
ORDER BY cluster, namespace, workload_kind, workload, kind, name
