-- Devices that exporters report on several nodes of the inventory at the same time, with the nodes
-- that report more devices than they have: the device is not one of theirs.
WITH placed AS (
    SELECT
        s.cluster,
        s.device,
        n.node,
        any_value(n.gpu_count) AS gpu_count,
        min(s.first_bucket) AS first_bucket,
        max(s.last_bucket) AS last_bucket
    FROM seen AS s
    INNER JOIN node AS n ON s.cluster = n.cluster AND n.node IN (s.node, s.other_node)
    LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
    WHERE d.parent IS null
    GROUP BY s.cluster, s.device, n.node
),

counted AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY cluster, node) AS devices
    FROM placed
)

SELECT DISTINCT
    c.cluster,
    c.device,
    c.node
FROM counted AS c
INNER JOIN placed AS o
    ON
        c.cluster = o.cluster AND c.device = o.device AND c.node <> o.node
        AND c.first_bucket <= o.last_bucket AND c.last_bucket >= o.first_bucket
WHERE c.devices > c.gpu_count
