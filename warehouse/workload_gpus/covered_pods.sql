-- How much of what each bound pod holds is covered by devices in evidence, as a mean over its part
-- of the stretch: devices that are allocated to the pod and that an exporter reports. A device is
-- in evidence until three of its intervals after it was last seen. An allocation that was last
-- known at most ten minutes before the end continues. Shared devices count as whole devices here.
-- Where telemetry names no pods, the pod may hold devices without telemetry: its coverage is
-- multiplied by the share of the node's devices that telemetry shows.
WITH node_devices AS (
    SELECT
        d.cluster,
        d.node,
        count(*)::DOUBLE AS devices
    FROM device AS d
    WHERE d.parent IS null
    GROUP BY d.cluster, d.node
),

-- Two joins by equality: one join with OR compares every pod with every allocation.
pod_allocations AS (
    SELECT
        b.span,
        b.uid,
        b.from_at,
        b.to_at,
        a.cluster,
        a.device,
        a.rule,
        a.share,
        a.start,
        a."end"
    FROM bound_pods AS b
    INNER JOIN allocation AS a
        ON
            b.cluster = a.cluster AND b.uid = a.pod_uid
            AND b.to_at > a.start AND b.from_at < coalesce(a."end", b.to_at)
    UNION ALL
    SELECT
        b.span,
        b.uid,
        b.from_at,
        b.to_at,
        a.cluster,
        a.device,
        a.rule,
        a.share,
        a.start,
        a."end"
    FROM bound_pods AS b
    INNER JOIN allocation AS a
        ON
            b.cluster = a.cluster AND b.namespace = a.namespace AND b.pod = a.pod
            AND b.uid <> a.pod_uid
            AND a.pod_uid = left(sha256(concat_ws('/', a.cluster, a.namespace, a.pod)), 32)
            AND b.to_at > a.start AND b.from_at < coalesce(a."end", b.to_at)
),

pieces AS (
    SELECT
        a.span,
        a.uid,
        a.from_at,
        a.to_at,
        CASE
            WHEN a.rule = 'request'
                THEN
                    coalesce(a.share, 1.0) * coalesce(d.weight, 1.0)
                    * least(1.0, coalesce(s.devices / nullif(n.gpu_count, 0), 1.0))
            ELSE coalesce(d.weight, 1.0)
        END AS gpus,
        greatest(a.start, d.first_seen, a.from_at) AS start_at,
        least(
            CASE WHEN a."end" >= a.to_at - INTERVAL 10 MINUTE THEN a.to_at ELSE a."end" END,
            d.last_seen + to_milliseconds((3000 * coalesce(d.interval_s, 60))::BIGINT),
            a.to_at
        ) AS end_at
    FROM pod_allocations AS a
    INNER JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    LEFT JOIN node_devices AS s ON d.cluster = s.cluster AND d.node = s.node
    LEFT JOIN node AS n ON d.cluster = n.cluster AND d.node = n.node
),

covered AS (
    SELECT
        span,
        uid,
        sum(gpus * (epoch_us(end_at) - epoch_us(start_at)))
        / any_value(epoch_us(to_at) - epoch_us(from_at)) AS gpus
    FROM pieces
    WHERE start_at < end_at
    GROUP BY span, uid
)

SELECT
    b.span,
    b.uid,
    b.pod,
    b.node,
    b.gpus,
    b.at_end,
    least(b.gpus, coalesce(c.gpus, 0.0)) AS gpus_seen,
    epoch_us(b.to_at) - epoch_us(b.from_at) AS part_us
FROM bound_pods AS b
LEFT JOIN covered AS c ON b.span = c.span AND b.uid = c.uid
