-- The ledger's totals of the window per day, under the names of by_device/ledger_lines. Of hours
-- before the first and after the last midnight of the window the ledger's own rows.
SELECT
    first_bucket,
    last_bucket,
    cluster,
    namespace,
    workload_kind,
    workload,
    team,
    node,
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
FROM ledger_1d
WHERE
    bucket >= date_trunc('day', $since::TIMESTAMP - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY
    AND bucket < date_trunc('day', $until::TIMESTAMP)
UNION ALL BY NAME
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
    null::VARCHAR AS device,
    state,
    bucket,
    null::DOUBLE AS seconds,
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
WHERE
    (
        bucket >= $since
        AND bucket < least(
            $until::TIMESTAMP,
            date_trunc('day', $since::TIMESTAMP - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY
        )
    )
    OR (
        bucket >= greatest(
            date_trunc('day', $until::TIMESTAMP),
            date_trunc('day', $since::TIMESTAMP - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY
        )
        AND bucket < $until
    )
