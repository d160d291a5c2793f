-- The start of a cluster's data: its first sample, or its first scrape where no sample ever
-- arrived. A node may be older than that: its creation time does not show when Fallow began to
-- observe it.
WITH sampled AS (
    SELECT
        cluster,
        min(first_seen) AS begun_at
    FROM device
    GROUP BY cluster
),

unsampled AS (
    SELECT DISTINCT n.cluster
    FROM node AS n
    ANTI JOIN sampled AS s ON n.cluster = s.cluster
)

SELECT
    cluster,
    begun_at
FROM sampled
UNION ALL BY NAME
SELECT
    s.cluster,
    min(s.ts) AS begun_at
FROM scrape AS s
INNER JOIN unsampled AS u ON s.cluster = u.cluster
GROUP BY s.cluster
