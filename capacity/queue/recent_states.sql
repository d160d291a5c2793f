-- What the ledger says of the devices of each workload in its newest hours: seconds by state.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    device,
    sum(seconds) AS seconds,
    coalesce(sum(seconds) FILTER (WHERE state = 'idle'), 0) AS idle_s
FROM ledger
WHERE
    bucket >= $until::TIMESTAMP - INTERVAL 90 MINUTE AND bucket < $until
    AND namespace <> ''
GROUP BY ALL
ORDER BY ALL
