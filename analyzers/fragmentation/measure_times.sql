-- The times at which each cluster is measured: the ends of $parts equal parts of the time with
-- device samples. The devices of a `still` cluster have no samples: its nodes and pods are measured
-- once, whatever the window.
WITH clusters AS (
    SELECT cluster FROM node
    UNION
    SELECT cluster FROM device
),

parts AS (
    SELECT unnest(range(1, $parts + 1)) AS nth
),

seen AS (
    SELECT
        n.cluster,
        min(d.first_seen) AS first_seen,
        max(d.last_seen) AS last_seen
    FROM clusters AS n
    LEFT JOIN device AS d ON n.cluster = d.cluster
    GROUP BY n.cluster
),

spans AS (
    SELECT
        cluster,
        first_seen IS null AS still,
        greatest(first_seen, $since) AS from_at,
        least(last_seen, $until) AS to_at
    FROM seen
)

SELECT
    cluster,
    true AS still,
    1 AS nth,
    $until AS at
FROM spans
WHERE still
UNION ALL BY NAME
SELECT
    s.cluster,
    false AS still,
    p.nth,
    s.from_at + (s.to_at - s.from_at) * (p.nth / $parts) - INTERVAL 1 MICROSECOND AS at
FROM spans AS s
CROSS JOIN parts AS p
WHERE NOT s.still AND s.from_at < s.to_at
ORDER BY cluster, nth
