-- How many hours of the window have data, per cluster and (cluster null) in any cluster. An hour in
-- which every device is unknown has no data.
SELECT
    cluster,
    count(DISTINCT bucket) AS hours
FROM ledger_1h
WHERE
    bucket >= $since AND bucket < $until
    AND state <> 'unknown'
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
GROUP BY GROUPING SETS ((cluster), ())
ORDER BY cluster ASC NULLS FIRST
