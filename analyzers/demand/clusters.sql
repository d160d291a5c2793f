-- Since when pods of each cluster were polled, and until when.
SELECT
    cluster,
    min(first_seen) AS first_seen,
    max(last_seen) AS last_seen
FROM pod
WHERE gpu_request > 0
GROUP BY cluster
ORDER BY cluster
