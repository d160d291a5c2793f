-- Nodes as they were seen when they joined, or at $oldest; each with the uid of its first era.
WITH joined AS (
    SELECT
        unnest($joined_nodes) AS node,
        unnest($joined_at::TIMESTAMP[]) AS joined_at
)

SELECT
    n.* REPLACE ( -- noqa: AM04
        first_value(e.uid) OVER (PARTITION BY n.cluster, n.node ORDER BY e.valid_from) AS uid,
        coalesce(j.joined_at, $oldest::TIMESTAMP) AS first_seen,
        coalesce(j.joined_at, $oldest::TIMESTAMP) AS last_seen
    )
FROM node AS n
INNER JOIN era AS e ON n.cluster = e.cluster AND n.node = e.node
LEFT JOIN joined AS j ON n.node = j.node
QUALIFY row_number() OVER (PARTITION BY n.cluster, n.node ORDER BY e.valid_from) = 1
ORDER BY n.cluster, n.node
