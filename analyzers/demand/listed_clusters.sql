-- The first and the last poll of pods of each cluster.
SELECT
    cluster,
    min(first_seen) AS first_seen,
    max(last_seen) AS last_seen
FROM pod
WHERE gpu_request > 0
GROUP BY cluster
HAVING count(first_seen) > 0
ORDER BY cluster
