-- The teams of the window's allocated hours, by namespace and workload, those of most hours first.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    team
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND namespace <> ''
    AND team IS NOT null
GROUP BY ALL
ORDER BY
    sum(gpu_seconds) DESC,
    cluster ASC,
    namespace ASC,
    workload_kind ASC,
    workload ASC,
    team ASC
