-- The chosen findings in one row; their dollars are a list: those of each cluster.
SELECT
    count(*) AS findings,
    count(*) FILTER (WHERE gpu_hours > 0) AS saving_findings,
    count(DISTINCT row(cluster, workload)) AS workloads,
    count(DISTINCT row(cluster, workload)) FILTER (WHERE gpu_hours > 0) AS saving_workloads,
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    (
        SELECT coalesce(list(of_cluster.usd), [])
        FROM (
            SELECT sum(usd) AS usd
            FROM chosen
            GROUP BY cluster
        ) AS of_cluster
    ) AS usd,
    sum(at_most_usd) AS at_most_usd
FROM (SELECT DISTINCT ON (cluster, id) * FROM chosen) AS findings -- noqa: AM04
