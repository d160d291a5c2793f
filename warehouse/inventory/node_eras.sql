-- What each node was from when to when, in the window. `from_at` to `to_at` is when it was there,
-- `holds_from` to `holds_to` the time for which these values answer: all of the window.
-- `life_from` to `life_to` is the whole life of a node, through changes of its values.
WITH ordered AS (
    SELECT
        e.*,
        coalesce(e.valid_to, n.last_seen) AS to_at,
        lag(e.valid_to) OVER of_node AS left_at,
        coalesce(lead(e.valid_from) OVER of_node, 'infinity') AS holds_to
    FROM every_era AS e
    INNER JOIN node AS n ON e.cluster = n.cluster AND e.node = n.node
    WINDOW of_node AS (PARTITION BY e.cluster, e.node ORDER BY e.valid_from)
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE left_at IS DISTINCT FROM valid_from) OVER (
            PARTITION BY cluster, node ORDER BY valid_from
        ) AS life
    FROM ordered
)

SELECT
    cluster,
    node,
    valid_from AS from_at,
    to_at,
    CASE WHEN left_at IS null THEN '-infinity'::TIMESTAMP ELSE valid_from END AS holds_from,
    holds_to,
    min(valid_from) OVER (PARTITION BY cluster, node, life) AS life_from,
    max(to_at) OVER (PARTITION BY cluster, node, life) AS life_to,
    * EXCLUDE ( -- noqa: AM04
        cluster, node, uid, valid_from, valid_to, born_at, first_seen, last_seen,
        to_at, left_at, holds_to, life
    ) REPLACE (
        nullif(region, '') AS region,
        nullif(zone, '') AS zone,
        nullif(instance_type, '') AS instance_type,
        nullif(capacity_type, '') AS capacity_type,
        nullif(pool, '') AS pool,
        nullif(gpu_allocatable, -1) AS gpu_allocatable,
        nullif(gpu_model, '') AS gpu_model,
        nullif(gpu_replicas, -1) AS gpu_replicas
    )
FROM numbered
QUALIFY holds_to > $since AND (left_at IS null OR valid_from < $until)
