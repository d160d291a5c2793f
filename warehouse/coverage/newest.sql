-- The newest hour of each cluster in the ledger.
SELECT
    cluster,
    max(bucket) AS hour
FROM ledger_1h
WHERE $cluster::VARCHAR IS null OR cluster = $cluster
GROUP BY cluster
ORDER BY cluster
