-- GPUs that were not allocated, as hourly means, by model.
SELECT
    cluster,
    date_trunc('hour', bucket) AS hour,
    coalesce(model, '') AS model,
    sum(gpu_seconds) / 3600 AS gpus
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND state IN ('free', 'stranded')
GROUP BY ALL
ORDER BY ALL
