-- Devices whose series ended in the window while others of their node went on, with the pod that
-- had them then. A node where MIG instances or shares hide GPUs is left out.
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
    d.last_seen AS at,
    coalesce(arg_max(a.namespace, a.start), '') AS namespace,
    coalesce(arg_max(a.pod, a.start), '') AS pod
FROM device AS d
INNER JOIN newest AS n ON d.cluster = n.cluster AND d.node = n.node
LEFT JOIN allocation AS a
    ON
        d.cluster = a.cluster AND d.device = a.device AND d.last_seen > a.start
        AND d.last_seen <= a."end" + to_seconds(n.tolerance_s)
WHERE
    d.last_seen >= $since
    AND d.last_seen < $until
    AND d.last_seen < n.node_until - to_seconds(n.tolerance_s)
GROUP BY d.cluster, d.device, d.node, d.last_seen
ORDER BY ALL
