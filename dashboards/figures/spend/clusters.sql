-- The first and the last hour of each cluster.
SELECT
    cluster,
    min(bucket) AS first_hour,
    max(bucket) AS last_hour
FROM paid
GROUP BY cluster
