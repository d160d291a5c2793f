-- Devices whose series ended in the window while others of their node went on. A node where MIG
-- instances or shares hide GPUs is left out.
WITH newest AS (
    SELECT
        cluster,
        node,
        max(last_seen) AS node_until,
        greatest(3 * max(interval_s), 300) AS tolerance_s
    FROM device
    GROUP BY cluster, node
    HAVING count(*) FILTER (WHERE parent IS NOT null) = 0
)

SELECT
    d.cluster,
    d.device,
    d.node,
    d.last_seen AS at
FROM device AS d
INNER JOIN newest AS n ON d.cluster = n.cluster AND d.node = n.node
WHERE
    d.last_seen >= $since
    AND d.last_seen < $until
    AND d.last_seen < n.node_until - to_seconds(n.tolerance_s)
ORDER BY ALL
