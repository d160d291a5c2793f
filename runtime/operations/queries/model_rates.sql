-- What a GPU-hour of each model cost on average, fully loaded.
SELECT
    model,
    sum(usd)::DOUBLE / sum(gpu_seconds) * 3600 AS usd_h
FROM ledger
WHERE priced
GROUP BY model
HAVING sum(gpu_seconds) > 0
ORDER BY model
