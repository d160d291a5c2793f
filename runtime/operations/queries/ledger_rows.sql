-- The ledger of a window: a row per device, bucket and state.
SELECT *
FROM ledger
WHERE
    bucket >= $since AND bucket < $until
    AND ($cluster IS NULL OR cluster = $cluster)
ORDER BY cluster, bucket, device, state, namespace, workload_kind, workload
