-- Whose each pod is, by the name that `paid` has for its workload.
SELECT
    cluster,
    namespace,
    pod,
    any_value(namespace || '/' || workload_kind || '/' || workload) AS workload
FROM pod
WHERE workload IS NOT null AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
