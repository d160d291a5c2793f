WITH newest AS (
    SELECT max(bucket) AS bucket
    FROM ledger
    WHERE bucket <= $now AND ($cluster::VARCHAR IS null OR cluster = $cluster)
)

SELECT
    l.model,
    sum(l.gpu_seconds) / 3600 AS gpu_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE NOT l.priced), 0) / 3600 AS unpriced
FROM ledger AS l, newest AS n
WHERE
    l.bucket > n.bucket - to_days($days)
    AND ($cluster::VARCHAR IS null OR l.cluster = $cluster)
GROUP BY l.model
ORDER BY unpriced DESC, l.model ASC
