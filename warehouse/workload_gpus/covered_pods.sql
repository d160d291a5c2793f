-- How much of what each bound pod holds is covered by devices in evidence (`pod_devices.sql`), as a
-- mean over its part of the stretch. An allocation that was last known at most ten minutes before
-- the end continues.
WITH pieces AS (
    SELECT
        b.span,
        b.pod_number,
        b.from_at,
        b.to_at,
        a.gpus,
        greatest(a.seen_from, b.from_at) AS start_at,
        least(
            CASE WHEN a."end" >= b.to_at - INTERVAL 10 MINUTE THEN b.to_at ELSE a."end" END,
            a.seen_until,
            b.to_at
        ) AS end_at
    FROM bound_pods AS b
    INNER JOIN pod_devices AS a
        ON
            b.pod_number = a.pod_number
            AND b.to_at > a.start AND b.from_at < coalesce(a."end", b.to_at)
),

covered AS (
    SELECT
        span,
        pod_number,
        sum(gpus * (epoch_us(end_at) - epoch_us(start_at)))
        / any_value(epoch_us(to_at) - epoch_us(from_at)) AS gpus
    FROM pieces
    WHERE start_at < end_at
    GROUP BY span, pod_number
)

SELECT
    b.span,
    b.pod_number,
    b.pod,
    b.node,
    b.gpus,
    b.at_end,
    least(b.gpus, coalesce(c.gpus, 0.0)) AS gpus_seen,
    epoch_us(b.to_at) - epoch_us(b.from_at) AS part_us
FROM bound_pods AS b
LEFT JOIN covered AS c ON b.span = c.span AND b.pod_number = c.pod_number
