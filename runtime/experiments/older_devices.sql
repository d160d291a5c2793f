-- Devices as they were seen when their node joined, or at $oldest.
WITH joined AS (
    SELECT
        unnest($joined_nodes) AS node,
        unnest($joined_at::TIMESTAMP[]) AS joined_at
)

SELECT
    d.* REPLACE ( -- noqa: AM04
        coalesce(j.joined_at, $oldest::TIMESTAMP) AS first_seen,
        coalesce(j.joined_at, $oldest::TIMESTAMP) AS last_seen
    )
FROM device AS d
LEFT JOIN joined AS j ON d.node = j.node
ORDER BY d.cluster, d.device
