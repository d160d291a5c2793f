-- What a GPU-hour of each node cost in the ledger's last day.
SELECT
    cluster,
    node,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    sum(usd) AS usd
FROM ledger
WHERE
    bucket >= $until::TIMESTAMP - INTERVAL 1 DAY AND bucket < $until
    AND node IS NOT null AND priced
GROUP BY ALL
HAVING sum(gpu_seconds) > 0
ORDER BY ALL
