-- What a GPU-hour of each model cost in the window, fully loaded.
SELECT
    coalesce(model, '') AS gpu_model,
    sum(usd)::DOUBLE / sum(gpu_seconds) * 3600 AS usd_h
FROM ledger
WHERE
    priced
    AND bucket >= $since::TIMESTAMP
    AND bucket < $until::TIMESTAMP
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY ALL
HAVING sum(gpu_seconds) > 0
ORDER BY ALL
