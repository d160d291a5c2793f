-- Unallocated GPU-hours and dollars by node; dollars are null where an hour has no price.
SELECT
    cluster,
    node,
    state,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM ledger
WHERE
    bucket >= $since AND bucket < $until
    AND state IN ('free', 'stranded')
    AND namespace = ''
GROUP BY cluster, node, state
ORDER BY cluster, node, state
