-- The workload and team behind each number; 0 = unallocated.
SELECT
    holder_id,
    any_value(namespace) AS namespace,
    any_value(workload_kind) AS workload_kind,
    any_value(workload) AS workload,
    any_value(team) AS team
FROM owners
GROUP BY holder_id
UNION ALL BY NAME
SELECT
    0 AS holder_id,
    '' AS namespace,
    '' AS workload_kind,
    '' AS workload,
    null AS team
