-- Seconds of each cell in which each pod held the device: `time_s` the elapsed time, `own_s` that
-- time times the pod's share, `start_s` the part of `time_s` in startup. A cell in which another
-- team begins to pay is of the team that has most of it.
WITH pieces AS (
    SELECT
        c.device_id,
        c.bucket,
        c.cell,
        o.owner_id,
        o.holder_id,
        o.share,
        epoch(least(c.to_at, o.end_at)) - epoch(greatest(c.from_at, o.start_at)) AS time_s,
        CASE
            WHEN s.ready > c.from_at
                THEN greatest(
                    0,
                    epoch(least(c.to_at, o.end_at, s.ready))
                    - epoch(greatest(c.from_at, o.start_at, o.born))
                )
            ELSE 0
        END AS start_s
    FROM cells AS c
    INNER JOIN owners AS o
        ON c.device_id = o.device_id AND c.to_at > o.start_at AND c.from_at < o.end_at
    LEFT JOIN startups AS s ON o.owner_id = s.owner_id AND o.born = s.born
    WHERE c.kind <> 'unpartitioned'
)

SELECT
    device_id,
    bucket,
    cell,
    owner_id,
    arg_max(holder_id, (time_s, holder_id)) AS holder_id,
    sum(time_s::DECIMAL(18, 9))::DOUBLE AS time_s,
    sum((time_s * share)::DECIMAL(18, 9))::DOUBLE AS own_s,
    sum(start_s::DECIMAL(18, 9))::DOUBLE AS start_s
FROM pieces
GROUP BY device_id, bucket, cell, owner_id
