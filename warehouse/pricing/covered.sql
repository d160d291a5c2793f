-- What part of a kind's node-hours the nodes of a commitment pay, hour by hour: the committed
-- node-hours divided by the node-hours of every matching node, whatever it is labelled but spot.
-- Commitments are used in the order of `turn`.
WITH promised AS (
    SELECT
        *,
        row_number() OVER (ORDER BY valid_from, source, region) AS turn
    FROM rate
    WHERE
        nodes > 0 AND gpu_count > 0
        AND valid_from < $until AND coalesce(valid_to, $until) > $since
),

hours AS (
    SELECT unnest(
        generate_series(
            date_trunc('hour', $since::TIMESTAMP),
            $until - INTERVAL 1 MICROSECOND,
            INTERVAL 1 HOUR
        )
    ) AS hour
),

promised_hours AS (
    SELECT
        p.*,
        greatest(h.hour, p.valid_from) AS from_at,
        least(h.hour + INTERVAL 1 HOUR, coalesce(p.valid_to, h.hour + INTERVAL 1 HOUR)) AS to_at
    FROM promised AS p
    INNER JOIN hours AS h
        ON
            p.valid_from < h.hour + INTERVAL 1 HOUR
            AND coalesce(p.valid_to, h.hour + INTERVAL 1 HOUR) > h.hour
),

running AS (
    SELECT
        p.turn,
        p.from_at,
        sum(
            (epoch(least(n.to_at, p.to_at)) - epoch(greatest(n.from_at, p.from_at)))
            * coalesce(n.gpu_count, p.gpu_count)
        ) AS gpu_s
    FROM promised_hours AS p
    INNER JOIN node_eras AS n
        ON
            p.instance_type = n.instance_type
            AND (p.region = '' OR coalesce(n.region, $region) IN ('', p.region))
            AND (p.gpu_model = '' OR n.gpu_model IS null OR p.gpu_model = n.gpu_model)
            AND coalesce(n.capacity_type, '') <> 'spot'
            AND p.to_at > n.from_at AND p.from_at < n.to_at
    GROUP BY p.turn, p.from_at
)

SELECT
    k.kind,
    p.turn,
    p.source,
    p.reference,
    p.as_of,
    p.from_at,
    p.to_at,
    p.node_usd_h::DOUBLE / p.gpu_count AS loaded_usd_h,
    p.gpu_usd_h::DOUBLE AS gpu_usd_h,
    least(1, p.nodes * p.gpu_count * (epoch(p.to_at) - epoch(p.from_at)) / r.gpu_s) AS part
FROM promised_hours AS p
INNER JOIN running AS r ON p.turn = r.turn AND p.from_at = r.from_at
INNER JOIN kinds AS k
    ON
        p.instance_type = k.instance_type
        AND (p.region = '' OR k.region IN ('', p.region))
        AND (p.gpu_model = '' OR k.gpu_model IS null OR p.gpu_model = k.gpu_model)
        AND k.capacity_type <> 'spot'
