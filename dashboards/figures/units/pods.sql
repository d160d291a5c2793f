-- The workload of each pod.
SELECT
    cluster,
    namespace,
    pod,
    any_value(struct_pack(kind := workload_kind, name := workload)) AS owner
FROM pod
WHERE workload IS NOT null AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
