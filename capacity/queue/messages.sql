-- The newest message of each reason about each waiting pod since it was created.
SELECT
    e.cluster,
    e.namespace,
    e.name AS pod,
    e.reason,
    arg_max(e.message, e.ts) AS message,
    epoch_us(max(e.ts)) AS at_us
FROM event AS e
WHERE
    e.kind = 'Pod' AND e.ts < $until AND e.ts >= $since
    AND e.type IS DISTINCT FROM 'Normal'
    AND e.message IS NOT null
GROUP BY ALL
ORDER BY ALL
