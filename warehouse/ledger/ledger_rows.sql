-- The result: states with weights and prices, and numbers replaced by names. Dollars are rounded
-- along the running sum of a device's bucket. So its rows sum to its rounded price exactly, and
-- each row is off by at most 1e-8. The effective utilisation of a holder is assigned to its active
-- seconds, at most 1; its idle seconds get the remainder.
-- Sums have no order: in every step, each addend of seconds is rounded to a nanosecond, and of
-- dollars times seconds to 1e-12, as a DECIMAL, before it is summed. So the same rows have the same
-- dollars in any home, file and thread. (Differences of `epoch` are multiples of 2^-22 s, and sums
-- of FLOAT seconds fit a DOUBLE: these are exact as they are.)
WITH priced AS MATERIALIZED (
    SELECT
        s.device_id,
        s.bucket,
        s.holder_id,
        p.as_of,
        p.estimated,
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
        s.low_s + s.busy_s + s.lost_s AS active_s,
        s.idle_s + s.startup_s AS rest_s,
        CASE
            WHEN active_s > 0 AND s.effective IS NOT null
                THEN least(1, s.effective * (active_s + rest_s) / active_s)
        END AS effective_active,
        CASE
            WHEN rest_s > 0
                THEN (
                    s.effective * (active_s + rest_s)
                    - coalesce(effective_active, 0) * active_s
                ) / rest_s
        END AS effective_rest,
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
    INNER JOIN timelines AS k ON s.device_id = k.device_id
    LEFT JOIN weights AS w ON s.device_id = w.device_id AND s.bucket = w.bucket
    LEFT JOIN prices AS p ON k.timeline = p.timeline AND s.bucket = p.bucket
),

-- The order of the states is the order of the running sum. One branch per state: most rows have
-- one or two of the nine, and a list of nine structs would be built for each.
seconds_by_state AS (
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'free' AS state,
        free_s AS seconds,
        upto_0 AS from_s,
        upto_1 AS upto_s,
        null::DOUBLE AS effective
    FROM priced
    WHERE free_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'idle' AS state,
        idle_s AS seconds,
        upto_1 AS from_s,
        upto_2 AS upto_s,
        effective_rest AS effective
    FROM priced
    WHERE idle_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'low' AS state,
        low_s AS seconds,
        upto_2 AS from_s,
        upto_3 AS upto_s,
        effective_active AS effective
    FROM priced
    WHERE low_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'productive' AS state,
        busy_s AS seconds,
        upto_3 AS from_s,
        upto_4 AS upto_s,
        effective_active AS effective
    FROM priced
    WHERE busy_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'startup' AS state,
        startup_s AS seconds,
        upto_4 AS from_s,
        upto_5 AS upto_s,
        effective_rest AS effective
    FROM priced
    WHERE startup_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'stranded' AS state,
        stranded_s AS seconds,
        upto_5 AS from_s,
        upto_6 AS upto_s,
        null AS effective
    FROM priced
    WHERE stranded_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'unavailable' AS state,
        unavailable_s AS seconds,
        upto_6 AS from_s,
        upto_7 AS upto_s,
        null AS effective
    FROM priced
    WHERE unavailable_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'unknown' AS state,
        unknown_s AS seconds,
        upto_7 AS from_s,
        upto_8 AS upto_s,
        null AS effective
    FROM priced
    WHERE unknown_s > 1e-6 AND gpus > 1e-6
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        holder_id,
        as_of,
        estimated,
        gpus,
        usd_s,
        gpu_usd_s,
        'lost' AS state,
        lost_s AS seconds,
        upto_8 AS from_s,
        upto_9 AS upto_s,
        effective_active AS effective
    FROM priced
    WHERE lost_s > 1e-6 AND gpus > 1e-6
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
    coalesce(t.estimated, false) AS estimated,
    t.as_of AS price_as_of,
    t.effective
FROM seconds_by_state AS t
INNER JOIN pooled AS d
    ON
        t.device_id = d.device_id
        AND t.bucket + to_seconds($step_s / 2) >= d.holds_from
        AND t.bucket + to_seconds($step_s / 2) < d.holds_to
INNER JOIN holders AS h ON t.holder_id = h.holder_id
