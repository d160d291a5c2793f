-- The nodes that each device of `incoming` was on, from when to when, where that is not the stored
-- one; it may come back. A device that two nodes have in turns has not moved.
WITH marked AS (
    SELECT
        cluster,
        device,
        node,
        first_seen,
        last_seen,
        coalesce(node <> lag(node) OVER of_device, true) AS begins
    FROM incoming
    WHERE node IS NOT null
    WINDOW of_device AS (PARTITION BY cluster, device ORDER BY first_seen, node)
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE begins) OVER (
            PARTITION BY cluster, device ORDER BY first_seen, node
        ) AS run
    FROM marked
),

placed AS (
    SELECT
        cluster,
        device,
        node,
        min(first_seen) AS first_seen,
        max(last_seen) AS last_seen
    FROM numbered
    GROUP BY cluster, device, node, run
),

ordered AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY cluster, device) AS runs,
        lead(first_seen) OVER of_device AS next_at,
        lag(last_seen) OVER of_device AS previous_at
    FROM placed
    WINDOW of_device AS (PARTITION BY cluster, device ORDER BY first_seen, node)
)

SELECT
    p.cluster,
    p.device AS id,
    p.first_seen,
    p.last_seen,
    p.node AS value
FROM ordered AS p
LEFT JOIN device AS d ON p.cluster = d.cluster AND p.device = d.device
WHERE p.runs > 1 OR p.node <> d.node
QUALIFY
    bool_and(
        p.next_at IS null
        OR (p.next_at >= p.last_seen AND (p.previous_at IS null OR p.last_seen > p.first_seen))
    ) OVER (PARTITION BY p.cluster, p.device)
ORDER BY ALL
