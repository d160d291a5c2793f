-- When a node could not accept work. Only what was observed: the stretches from events, and the
-- current state from its last change on (or from the hour in which it was first seen).
WITH changes AS (
    SELECT
        cluster,
        name AS node,
        reason,
        ts,
        lead(ts) OVER (PARTITION BY cluster, name ORDER BY ts) AS next_ts
    FROM event
    WHERE kind = 'Node' AND reason IN ('NodeNotReady', 'NodeReady')
),

stretches AS (
    SELECT
        cluster,
        node,
        ts AS from_at,
        next_ts AS to_at
    FROM changes
    WHERE reason = 'NodeNotReady' AND next_ts IS NOT null AND next_ts > $since AND ts < $until
    UNION ALL
    SELECT
        n.cluster,
        n.node,
        coalesce(
            max(c.ts) FILTER (WHERE c.reason = 'NodeNotReady' AND c.next_ts IS null),
            time_bucket(INTERVAL 1 HOUR, any_value(n.last_seen))
        ) AS from_at,
        $until AS to_at
    FROM node AS n
    LEFT JOIN changes AS c ON n.cluster = c.cluster AND n.node = c.node
    WHERE NOT coalesce(n.ready, true) OR coalesce(n.unschedulable, false)
    GROUP BY n.cluster, n.node
)

SELECT
    d.device_id,
    s.from_at,
    s.to_at
FROM stretches AS s
INNER JOIN spans AS d ON s.cluster = d.cluster AND s.node = d.node
GROUP BY d.device_id, s.from_at, s.to_at
