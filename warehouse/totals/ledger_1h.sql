-- The ledger of each hour by owner, pool, model and state. Rows with and without a price are apart,
-- so that their hours can be distinguished.
SELECT
    cluster,
    date_trunc('hour', bucket) AS bucket,
    namespace,
    team,
    pool,
    model,
    state,
    usd IS NOT null AS priced,
    coalesce(estimated, false) AS estimated,
    usd_gpu IS NOT null AS priced_gpu,
    sum(gpu_seconds) AS gpu_seconds,
    sum(usd)::DECIMAL(18, 8) AS usd,
    sum(usd_gpu)::DECIMAL(18, 8) AS usd_gpu,
    sum(gpu_seconds) FILTER (WHERE namespace <> '' AND effective IS NOT null)
        AS measured_gpu_seconds,
    sum(effective * gpu_seconds) FILTER (WHERE namespace <> '') AS effective_gpu_seconds,
    max(price_as_of) AS price_as_of,
    min(price_as_of) AS oldest_price_as_of
FROM ledger
WHERE bucket >= $since AND bucket < $until
GROUP BY ALL
