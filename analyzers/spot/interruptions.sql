-- How often the cloud reclaimed spot nodes, by type, over the hours that such nodes existed.
-- Several events about one node within 15 minutes are one interruption. `events` is whether the
-- cluster's events are collected at all: without them, zero events prove nothing.
WITH spot AS (
    SELECT
        * REPLACE (
            greatest(coalesce(from_at, $since), $since) AS from_at,
            least(to_at, $until) AS to_at
        )
    FROM node_eras
    WHERE capacity_type = 'spot' AND gpu_count > 0 AND instance_type IS NOT null
),

event_counts AS (
    SELECT
        cluster,
        count(*) AS events
    FROM event
    WHERE ts >= $since AND ts < $until
    GROUP BY cluster
),

reclaims AS (
    SELECT
        cluster,
        name AS node,
        min(ts) AS ts
    FROM event
    WHERE kind = 'Node' AND list_contains($reasons, reason) AND ts >= $since AND ts < $until
    GROUP BY cluster, name, time_bucket(INTERVAL 15 MINUTE, ts)
),

times AS (
    SELECT
        s.cluster,
        s.node,
        s.from_at,
        count(*) AS times
    FROM spot AS s
    INNER JOIN reclaims AS r
        ON
            s.cluster = r.cluster AND s.node = r.node
            AND s.holds_from <= r.ts AND s.holds_to > r.ts
    GROUP BY s.cluster, s.node, s.from_at
)

SELECT
    s.provider,
    s.region,
    s.instance_type,
    count(DISTINCT struct_pack(c := s.cluster, n := s.node)) AS nodes,
    sum(epoch(s.to_at) - epoch(s.from_at)) / 3600 AS node_hours,
    coalesce(sum(t.times), 0)::BIGINT AS interruptions
FROM spot AS s
INNER JOIN event_counts AS o ON s.cluster = o.cluster
LEFT JOIN times AS t ON s.cluster = t.cluster AND s.node = t.node AND s.from_at = t.from_at
WHERE s.to_at > s.from_at
GROUP BY s.provider, s.region, s.instance_type
ORDER BY ALL
