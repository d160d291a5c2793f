-- Devices of the last week of data on a node that their cluster's inventory does not have.
WITH newest AS (
    SELECT
        cluster,
        max(last_seen) AS last_seen
    FROM device
    GROUP BY cluster
)

SELECT
    d.cluster,
    coalesce(d.node, '?') AS node,
    count(*) AS devices
FROM device AS d
INNER JOIN newest AS w ON d.cluster = w.cluster
SEMI JOIN node AS k ON d.cluster = k.cluster AND k.gpu_count > 0
ANTI JOIN node AS n ON d.cluster = n.cluster AND d.node = n.node
WHERE d.last_seen >= w.last_seen - to_days($days)
GROUP BY d.cluster, d.node
ORDER BY devices DESC, d.cluster ASC, node ASC
