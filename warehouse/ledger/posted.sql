-- The answer: states weighed and priced, numbers made names again. Dollars are rounded along the
-- running sum of a device's bucket, so that its rows sum to its rounded price exactly and no row is
-- off by more than 1e-8.
WITH priced AS (
    SELECT
        s.device_id,
        s.bucket,
        s.holder_id,
        p.as_of,
        coalesce(w.weight, d.weight) AS gpus,
        gpus / 3600 * p.loaded_usd_h AS usd_s,
        gpus / 3600 * p.gpu_usd_h AS gpu_usd_s,
        [
            s.free_s,
            s.idle_s,
            s.low_s,
            s.busy_s,
            s.startup_s,
            s.stranded_s,
            s.unavailable_s,
            s.unknown_s
        ] AS parts,
        s.before_s AS upto_0,
        upto_0 + s.free_s AS upto_1,
        upto_1 + s.idle_s AS upto_2,
        upto_2 + s.low_s AS upto_3,
        upto_3 + s.busy_s AS upto_4,
        upto_4 + s.startup_s AS upto_5,
        upto_5 + s.stranded_s AS upto_6,
        upto_6 + s.unavailable_s AS upto_7,
        upto_7 + s.unknown_s AS upto_8
    FROM states AS s
    INNER JOIN devices AS d ON s.device_id = d.device_id
    INNER JOIN subjects AS k ON s.device_id = k.device_id
    LEFT JOIN weights AS w ON s.device_id = w.device_id AND s.bucket = w.bucket
    LEFT JOIN prices AS p ON k.kind = p.kind AND s.bucket = p.bucket
),

told AS (
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        gpus,
        usd_s,
        gpu_usd_s,
        unnest(
            [
                'free',
                'idle',
                'low',
                'productive',
                'startup',
                'stranded',
                'unavailable',
                'unknown'
            ]
        ) AS state,
        unnest(parts) AS seconds,
        unnest([upto_0, upto_1, upto_2, upto_3, upto_4, upto_5, upto_6, upto_7]) AS from_s,
        unnest([upto_1, upto_2, upto_3, upto_4, upto_5, upto_6, upto_7, upto_8]) AS upto_s
    FROM priced
    WHERE gpus > 1e-6
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
WHERE t.seconds > 1e-6
