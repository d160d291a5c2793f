-- The nodes that each device of `incoming` was on, from when to when, where that is not the stored
-- one. A device that two nodes have in turns has not moved.
WITH placed AS (
    SELECT
        cluster,
        device,
        node,
        min(first_seen) AS first_seen,
        max(last_seen) AS last_seen
    FROM incoming
    WHERE node IS NOT null
    GROUP BY cluster, device, node
),

ordered AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY cluster, device) AS nodes,
        lead(first_seen) OVER (PARTITION BY cluster, device ORDER BY first_seen) AS next_at
    FROM placed
)

SELECT
    p.cluster,
    p.device AS id,
    p.first_seen,
    p.last_seen,
    p.node AS value
FROM ordered AS p
LEFT JOIN device AS d ON p.cluster = d.cluster AND p.device = d.device
WHERE p.nodes > 1 OR p.node <> d.node
QUALIFY
    bool_and(p.next_at IS null OR p.next_at >= p.last_seen)
        OVER (PARTITION BY p.cluster, p.device)
ORDER BY ALL
