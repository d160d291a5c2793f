-- When a node could not accept work. Only what was observed: the stretches from events, and the
-- current state from its last change on (or from the hour in which it was first seen). Of a node's
-- devices more than the kubelet can allocate, those that are held least in the hour are down, too.
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
    UNION ALL BY NAME
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
),

short_eras AS (
    SELECT
        cluster,
        node,
        gpu_allocatable,
        from_at AS era_start,
        to_at AS era_end,
        unnest(
            generate_series(
                time_bucket(INTERVAL 1 HOUR, greatest(from_at, $since)),
                least(to_at, $until) - INTERVAL 1 MICROSECOND,
                INTERVAL 1 HOUR
            )
        ) AS hour_at
    FROM node_eras
    WHERE gpu_allocatable < gpu_count
),

short_hours AS (
    SELECT
        cluster,
        node,
        gpu_allocatable,
        greatest(era_start, hour_at, $since) AS from_at,
        least(era_end, hour_at + INTERVAL 1 HOUR, $until) AS to_at
    FROM short_eras
),

in_hours AS (
    SELECT
        h.cluster,
        h.node,
        h.gpu_allocatable,
        h.from_at,
        h.to_at,
        s.device_id,
        s.device,
        epoch(least(s.to_at, h.to_at)) - epoch(greatest(s.from_at, h.from_at)) AS span_s,
        coalesce(
            (
                SELECT
                    sum(
                        epoch(least(o.end_at, h.to_at)) - epoch(greatest(o.start_at, h.from_at))
                    )
                FROM owners AS o
                WHERE
                    o.device_id = s.device_id AND o.start_at < h.to_at AND o.end_at > h.from_at
            ),
            0
        ) AS allocated_s
    FROM short_hours AS h
    INNER JOIN spans AS s
        ON
            h.cluster = s.cluster AND h.node = s.node
            AND h.to_at > s.from_at AND h.from_at < s.to_at AND s.kind = 'whole'
),

ordered_devices AS (
    SELECT
        *,
        coalesce(
            sum(span_s) OVER (
                PARTITION BY cluster, node, from_at
                ORDER BY allocated_s DESC, device ASC
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS before_s
    FROM in_hours
)

SELECT DISTINCT
    d.device_id,
    greatest(s.from_at, d.from_at) AS from_at,
    least(s.to_at, d.to_at) AS to_at
FROM stretches AS s
INNER JOIN spans AS d
    ON
        s.cluster = d.cluster AND s.node = d.node
        AND s.from_at < d.to_at AND s.to_at > d.from_at
UNION ALL BY NAME
SELECT
    device_id,
    from_at,
    to_at
FROM ordered_devices
WHERE round(before_s / (epoch(to_at) - epoch(from_at))) >= gpu_allocatable
