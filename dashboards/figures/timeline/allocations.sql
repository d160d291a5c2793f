-- Which devices the subject's workload held, from when to when.
SELECT
    cluster,
    device,
    namespace,
    pod,
    start,
    coalesce("end", $until::TIMESTAMP) AS "end"
FROM allocation
WHERE
    start < $until
    AND coalesce("end", $until::TIMESTAMP) > $since
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND namespace
    || '/' || workload_kind || '/' || workload = $workload
