-- The ledger's rows of the window.
SELECT
    bucket AS first_bucket,
    bucket AS last_bucket,
    cluster,
    namespace,
    workload_kind,
    workload,
    team,
    node,
    pool,
    model,
    device,
    state,
    bucket,
    seconds,
    gpu_seconds,
    usd,
    usd_gpu,
    coalesce(estimated, false) AS estimated,
    CASE WHEN namespace <> '' AND effective IS NOT null THEN gpu_seconds END
        AS measured_gpu_seconds,
    CASE WHEN namespace <> '' THEN effective * gpu_seconds END AS effective_gpu_seconds,
    price_as_of,
    price_as_of AS oldest_price_as_of
FROM ledger
WHERE bucket >= $since AND bucket < $until
