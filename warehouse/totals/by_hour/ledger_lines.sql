-- The ledger's totals of the window per hour, under the names of by_device/ledger_lines.
SELECT
    bucket AS first_bucket,
    bucket AS last_bucket,
    cluster,
    namespace,
    null::VARCHAR AS workload_kind,
    null::VARCHAR AS workload,
    team,
    null::VARCHAR AS node,
    pool,
    model,
    null::VARCHAR AS device,
    state,
    bucket,
    null::DOUBLE AS seconds,
    gpu_seconds,
    usd,
    usd_gpu,
    coalesce(estimated, false) AS estimated,
    measured_gpu_seconds,
    effective_gpu_seconds,
    price_as_of,
    oldest_price_as_of
FROM ledger_1h
WHERE bucket >= $since AND bucket < $until
