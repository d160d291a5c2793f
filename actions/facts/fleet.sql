-- How large the fleet is: the base of budgets in percent.
WITH allocations AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        a.team
    FROM allocation AS a
    WHERE a.start < $until AND coalesce(a."end", $until) >= $since
)

SELECT
    (
        SELECT sum(weight)
        FROM device
        WHERE first_seen < $until AND last_seen >= $since
    ) AS gpus,
    (
        SELECT max(gpus)
        FROM (
            SELECT sum(weight) AS gpus
            FROM device
            WHERE first_seen < $until AND last_seen >= $since AND node IS NOT NULL
            GROUP BY cluster, node
        ) AS node
    ) AS largest_node_gpus,
    (
        SELECT count(*)
        FROM (
            SELECT DISTINCT
                cluster,
                namespace,
                workload_kind,
                workload
            FROM allocations
        ) AS each
    ) AS workloads,
    (SELECT count(DISTINCT team) FROM allocations) AS owners
