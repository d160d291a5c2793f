-- Devices with the nodes that report them although they are not theirs: several nodes of the
-- inventory report one at the same time and this one reports more devices than it has, or the
-- inventory gives it to a pod of another node.
WITH placed AS (
    SELECT
        s.cluster,
        s.device,
        n.node,
        any_value(n.gpu_count) AS gpu_count,
        min(s.first_bucket) AS first_bucket,
        max(s.last_bucket) AS last_bucket
    FROM seen AS s
    INNER JOIN node AS n ON s.cluster = n.cluster AND s.node = n.node
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

SELECT
    c.cluster,
    c.device,
    c.node
FROM counted AS c
INNER JOIN placed AS o
    ON
        c.cluster = o.cluster AND c.device = o.device AND c.node <> o.node
        AND c.first_bucket <= o.last_bucket AND c.last_bucket >= o.first_bucket
WHERE c.devices > c.gpu_count
UNION
SELECT
    p.cluster,
    p.device,
    p.node
FROM placed AS p
INNER JOIN listed AS d ON p.cluster = d.cluster AND p.device = d.device
INNER JOIN lives AS l ON d.cluster = l.cluster AND d.uid = l.uid
INNER JOIN node AS n ON l.cluster = n.cluster AND l.node = n.node
WHERE
    d.registered AND d.refusal IS null AND p.node <> l.node
    AND p.first_bucket < l.life_end AND p.last_bucket >= l.life_start
