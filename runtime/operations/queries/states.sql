-- GPU-hours and dollars by ledger state; usd is null where no row has a price. Hours whose pods
-- name no owner that an inventory has are counted apart.
SELECT
    state,
    sum(gpu_seconds) / 3600.0 AS gpu_hours,
    sum(usd) FILTER (WHERE priced) AS usd,
    sum(gpu_seconds) FILTER (WHERE NOT priced) / 3600.0 AS unpriced_gpu_hours,
    sum(gpu_seconds) FILTER (WHERE estimated) / 3600.0 AS estimated_gpu_hours,
    sum(usd) FILTER (WHERE estimated) AS estimated_usd,
    sum(gpu_seconds) FILTER (WHERE workload_kind = 'unresolved') / 3600.0 AS ownerless_gpu_hours,
    min(price_as_of) AS oldest_price,
    max(price_as_of) AS newest_price
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
GROUP BY state
