-- When each cluster's pods were last looked at.
SELECT
    cluster,
    max(last_seen) AS last_look
FROM pod
GROUP BY cluster
