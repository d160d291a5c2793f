-- The pipes that each pod's devices used in the hours in which they mostly worked.
WITH summed AS (
    SELECT
        cluster,
        namespace,
        pod,
        device,
        any_value(node) AS node,
        min(bucket) AS first_hour,
        max(bucket) AS last_hour,
        sum(covered_s) AS work_s,
        avg(sm_active_mean) AS sm,
        avg(tensor_active_mean) AS tensor,
        avg(fp32_active_mean) AS fp32,
        avg(dram_active_mean) AS dram
    FROM pod_hours
    GROUP BY cluster, namespace, pod, device
)

SELECT
    s.cluster,
    s.namespace,
    o.workload_kind,
    o.workload,
    d.gpu_model AS model,
    any_value(o.team) AS team,
    min(s.first_hour) AS first_hour,
    max(s.last_hour) AS last_hour,
    list_sort(list(DISTINCT s.node)) AS nodes,
    [d.gpu_model] AS models,
    sum(s.work_s * coalesce(d.weight, 1)) / 3600 AS work_h,
    sum(s.sm * s.work_s) / sum(s.work_s) FILTER (WHERE s.sm IS NOT null) AS sm,
    sum(s.tensor * s.work_s) / sum(s.work_s) FILTER (WHERE s.tensor IS NOT null) AS tensor,
    sum(s.fp32 * s.work_s) / sum(s.work_s) FILTER (WHERE s.fp32 IS NOT null) AS fp32,
    sum(s.dram * s.work_s) / sum(s.work_s) FILTER (WHERE s.dram IS NOT null) AS dram
FROM summed AS s
INNER JOIN device_owners AS o
    ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
GROUP BY s.cluster, s.namespace, o.workload_kind, o.workload, d.gpu_model
HAVING sum(s.work_s * coalesce(d.weight, 1)) / 3600 >= $least_gpu_hours
ORDER BY ALL
