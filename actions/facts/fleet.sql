-- How large each cluster is, and the whole fleet (cluster is null): the base of budgets in percent.
WITH devices AS (
    SELECT
        cluster,
        node,
        weight
    FROM device
    WHERE first_seen < $until AND last_seen >= $since
),

allocations AS (
    SELECT
        a.cluster,
        a.team,
        (a.cluster, a.namespace, a.workload_kind, a.workload) AS workload
    FROM allocation AS a
    WHERE a.start < $until AND coalesce(a."end", $until) >= $since
),

gpus AS (
    SELECT
        cluster,
        sum(weight) AS gpus
    FROM devices
    GROUP BY GROUPING SETS ((cluster), ())
),

nodes AS (
    SELECT
        cluster,
        max(gpus) AS largest_node_gpus
    FROM (
        SELECT
            cluster,
            sum(weight) AS gpus
        FROM devices
        WHERE node IS NOT NULL
        GROUP BY cluster, node
    ) AS node
    GROUP BY GROUPING SETS ((cluster), ())
),

owners AS (
    SELECT
        cluster,
        count(DISTINCT workload) AS workloads,
        count(DISTINCT team) AS owners
    FROM allocations
    GROUP BY GROUPING SETS ((cluster), ())
)

SELECT
    g.cluster,
    g.gpus,
    n.largest_node_gpus,
    coalesce(o.workloads, 0) AS workloads,
    coalesce(o.owners, 0) AS owners
FROM gpus AS g
LEFT JOIN nodes AS n ON g.cluster IS NOT DISTINCT FROM n.cluster
LEFT JOIN owners AS o ON g.cluster IS NOT DISTINCT FROM o.cluster
