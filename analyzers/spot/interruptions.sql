-- How often the cloud reclaimed spot nodes, by type, over the hours that such nodes existed.
-- Several events about one node within 15 minutes are one interruption. `events` is whether the
-- cluster's events are collected at all: without them, zero events prove nothing.
WITH spot AS (
    SELECT
        *,
        greatest(coalesce(first_seen, $since), $since) AS from_at,
        least(last_seen, $until) AS to_at
    FROM node
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
        count(DISTINCT time_bucket(INTERVAL 15 MINUTE, ts)) AS times
    FROM event
    WHERE kind = 'Node' AND list_contains($reasons, reason) AND ts >= $since AND ts < $until
    GROUP BY cluster, name
)

SELECT
    s.provider,
    s.region,
    s.instance_type,
    count(*) AS nodes,
    sum(epoch(s.to_at) - epoch(s.from_at)) / 3600 AS node_hours,
    coalesce(sum(t.times), 0)::BIGINT AS interruptions
FROM spot AS s
INNER JOIN event_counts AS o ON s.cluster = o.cluster
LEFT JOIN reclaims AS t ON s.cluster = t.cluster AND s.node = t.node
WHERE s.to_at > s.from_at
GROUP BY s.provider, s.region, s.instance_type
ORDER BY ALL
