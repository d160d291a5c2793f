-- From when to when the ledger has prices, by cluster and model; none of a time to come.
SELECT
    cluster,
    coalesce(model, '') AS gpu_model,
    min(first_bucket) AS first,
    least(max(last_bucket) + INTERVAL 1 HOUR, $now::TIMESTAMP) AS last
FROM ledger_1d
WHERE priced AND first_bucket < $now
GROUP BY ALL
