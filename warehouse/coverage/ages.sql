-- When each cluster's newest sample ended, and the interval of its samples.
SELECT
    cluster,
    max(last_seen) AS newest,
    arg_max(interval_s, last_seen) AS interval_s
FROM device
WHERE $cluster::VARCHAR IS null OR cluster = $cluster
GROUP BY cluster
ORDER BY cluster
