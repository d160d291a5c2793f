-- The nodes of the pods of each job of some kinds when the last of them had started, whole GPUs
-- only: one row per node and model of jobs on several nodes.
WITH allocations AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        a.team,
        a.pod,
        a.device,
        a.start,
        a."end",
        d.node,
        d.gpu_model
    FROM allocation AS a
    INNER JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    WHERE
        a.start < $until AND a."end" > $since
        AND d.parent IS null AND d.node IS NOT null AND coalesce(a.share, 1.0) > 0.999
        AND list_contains($kinds, a.workload_kind)
),

latest AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        max(start) AS started_at,
        sum(epoch(least("end", $until)) - epoch(greatest(start, $since))) / 3600 AS all_hours
    FROM allocations
    GROUP BY cluster, namespace, workload_kind, workload
    HAVING count(DISTINCT node) > 1
)

SELECT
    h.cluster,
    h.namespace,
    h.workload_kind,
    h.workload,
    h.node,
    h.gpu_model AS model,
    l.started_at,
    l.all_hours,
    any_value(h.team) AS team,
    max(h."end") AS until,
    count(DISTINCT h.device) AS gpus,
    list_sort(list(DISTINCT h.pod)) AS pods,
    list_sort(list(DISTINCT h.device)) AS devices,
    sum(epoch(least(h."end", $until)) - epoch(greatest(h.start, $since))) / 3600 AS hours
FROM allocations AS h
INNER JOIN latest AS l
    ON
        h.cluster = l.cluster AND h.namespace = l.namespace
        AND h.workload_kind = l.workload_kind AND h.workload = l.workload
WHERE h.start <= l.started_at AND h."end" > l.started_at
GROUP BY ALL
ORDER BY ALL
