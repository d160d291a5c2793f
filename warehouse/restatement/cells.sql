-- The ledger's hours by device, state and holder: what is compared before and after.
SELECT
    cluster,
    device,
    state,
    date_trunc('hour', bucket) AS hour,
    namespace || '/' || workload_kind || '/' || workload AS holder,
    sum(gpu_seconds) AS gpu_seconds,
    coalesce(sum(usd), 0)::DOUBLE AS usd
FROM ledger
WHERE bucket >= $since AND bucket < $until
GROUP BY ALL
