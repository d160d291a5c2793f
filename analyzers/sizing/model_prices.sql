-- What a GPU-hour of each model costs on this site.
SELECT
    cluster,
    model,
    sum(usd)::DOUBLE / (sum(gpu_seconds) / 3600) AS usd_h
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND priced
    AND model IS NOT null
GROUP BY cluster, model
HAVING sum(gpu_seconds) > 0
ORDER BY cluster, model
