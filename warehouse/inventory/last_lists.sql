-- When each cluster's pods were last listed.
SELECT
    cluster,
    max(last_seen) AS last_list
FROM pod
GROUP BY cluster
