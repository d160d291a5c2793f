-- The answer: states weighed and priced, numbers made names again. Dollars are rounded along the
-- running sum of a device's bucket, so that its rows sum to its rounded price exactly and no row is
-- off by more than 1e-8.
WITH priced AS MATERIALIZED (
    SELECT
        s.device_id,
        s.bucket,
        s.holder_id,
        p.as_of,
        coalesce(w.weight, d.weight) AS gpus,
        gpus / 3600 * p.loaded_usd_h AS usd_s,
        gpus / 3600 * p.gpu_usd_h AS gpu_usd_s,
        s.free_s,
        s.idle_s,
        s.low_s,
        s.busy_s,
        s.startup_s,
        s.stranded_s,
        s.unavailable_s,
        s.unknown_s,
        s.lost_s,
        s.before_s AS upto_0,
        upto_0 + s.free_s AS upto_1,
        upto_1 + s.idle_s AS upto_2,
        upto_2 + s.low_s AS upto_3,
        upto_3 + s.busy_s AS upto_4,
        upto_4 + s.startup_s AS upto_5,
        upto_5 + s.stranded_s AS upto_6,
        upto_6 + s.unavailable_s AS upto_7,
        upto_7 + s.unknown_s AS upto_8,
        upto_8 + s.lost_s AS upto_9
    FROM states AS s
    INNER JOIN devices AS d ON s.device_id = d.device_id
    INNER JOIN subjects AS k ON s.device_id = k.device_id
    LEFT JOIN weights AS w ON s.device_id = w.device_id AND s.bucket = w.bucket
    LEFT JOIN prices AS p ON k.kind = p.kind AND s.bucket = p.bucket
),

-- Most buckets have one or two of the states.
told AS (
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'free' AS state,
        free_s AS seconds,
        upto_0 AS from_s,
        upto_1 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND free_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'idle' AS state,
        idle_s AS seconds,
        upto_1 AS from_s,
        upto_2 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND idle_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'low' AS state,
        low_s AS seconds,
        upto_2 AS from_s,
        upto_3 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND low_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'productive' AS state,
        busy_s AS seconds,
        upto_3 AS from_s,
        upto_4 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND busy_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'startup' AS state,
        startup_s AS seconds,
        upto_4 AS from_s,
        upto_5 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND startup_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'stranded' AS state,
        stranded_s AS seconds,
        upto_5 AS from_s,
        upto_6 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND stranded_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'unavailable' AS state,
        unavailable_s AS seconds,
        upto_6 AS from_s,
        upto_7 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND unavailable_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'unknown' AS state,
        unknown_s AS seconds,
        upto_7 AS from_s,
        upto_8 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND unknown_s > 1e-6
    UNION ALL
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        'lost' AS state,
        lost_s AS seconds,
        upto_8 AS from_s,
        upto_9 AS upto_s
    FROM priced
    WHERE gpus > 1e-6 AND lost_s > 1e-6
)

SELECT
    d.cluster,
    t.bucket,
    d.device,
    t.state,
    h.namespace,
    h.workload_kind,
    h.workload,
    h.team,
    d.node,
    d.pool,
    d.model,
    t.seconds,
    t.seconds * t.gpus AS gpu_seconds,
    (
        (t.usd_s * t.upto_s)::DECIMAL(18, 8) - (t.usd_s * t.from_s)::DECIMAL(18, 8)
    )::DECIMAL(18, 8) AS usd,
    (
        (t.gpu_usd_s * t.upto_s)::DECIMAL(18, 8) - (t.gpu_usd_s * t.from_s)::DECIMAL(18, 8)
    )::DECIMAL(18, 8) AS usd_gpu,
    t.usd_s IS NOT null AS priced,
    t.as_of AS price_as_of
FROM told AS t
INNER JOIN devices AS d ON t.device_id = d.device_id
INNER JOIN holders AS h ON t.holder_id = h.holder_id
