-- When each cluster's pods were last looked at.
SELECT
    cluster,
    max(last_seen) AS last_list
FROM pod
GROUP BY cluster
