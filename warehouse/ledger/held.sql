-- Seconds of each cell that each pod held: `time_s` on the clock, `own_s` its share of them,
-- `start_s` of them in startup.
WITH by_bucket AS (
    SELECT
        o.device_id,
        o.owner_id,
        o.holder_id,
        o.share,
        o.start_at,
        o.end_at,
        s.born,
        s.ready,
        unnest(
            generate_series(
                time_bucket(to_seconds($step_s), greatest(o.start_at, $since)),
                least(o.end_at, $until) - INTERVAL 1 MICROSECOND,
                to_seconds($step_s)
            )
        ) AS bucket
    FROM owners AS o
    LEFT JOIN startups AS s ON o.owner_id = s.owner_id AND o.born = s.born
),

pieces AS (
    SELECT
        c.device_id,
        c.bucket,
        c.cell,
        o.owner_id,
        o.holder_id,
        o.share,
        epoch(least(c.to_at, o.end_at)) - epoch(greatest(c.from_at, o.start_at)) AS time_s,
        CASE
            WHEN o.ready > c.from_at
                THEN greatest(
                    0,
                    epoch(least(c.to_at, o.end_at, o.ready))
                    - epoch(greatest(c.from_at, o.start_at, o.born))
                )
            ELSE 0
        END AS start_s
    FROM cells AS c
    INNER JOIN by_bucket AS o ON c.device_id = o.device_id AND c.bucket = o.bucket
    WHERE c.kind <> 'unpartitioned' AND o.start_at < c.to_at AND o.end_at > c.from_at
)

SELECT
    device_id,
    bucket,
    cell,
    owner_id,
    any_value(holder_id) AS holder_id,
    sum(time_s) AS time_s,
    sum(time_s * share) AS own_s,
    sum(start_s) AS start_s
FROM pieces
GROUP BY device_id, bucket, cell, owner_id
