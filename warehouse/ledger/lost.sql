-- The part of each cell that a pod held in which its work was later lost (`work_lost`): what it
-- computed between its last checkpoint and the failure or preemption that ended it.
WITH stretches AS (
    SELECT
        o.device_id,
        o.owner_id,
        greatest(w.start, o.start_at) AS from_at,
        least(w."end", o.end_at) AS to_at
    FROM work_lost AS w
    INNER JOIN owners AS o
        ON
            w.cluster = o.cluster AND w.namespace = o.namespace AND w.pod = o.pod
            AND w.start < o.end_at AND w."end" > o.start_at
    WHERE w.start < $until AND w."end" > $since
)

SELECT
    c.device_id,
    c.cell,
    c.owner_id,
    least(
        1,
        sum(
            epoch(least(s.to_at, c.cell + to_seconds(c.cell_s)))
            - epoch(greatest(s.from_at, c.cell))
        )
        / any_value(c.time_s)
    ) AS lost
FROM (
    SELECT
        h.*,
        k.cell_s
    FROM holder_seconds AS h
    INNER JOIN (
        SELECT DISTINCT
            device_id,
            cell,
            cell_s
        FROM cells
    ) AS k
        ON h.device_id = k.device_id AND h.cell = k.cell
) AS c
INNER JOIN stretches AS s
    ON
        c.device_id = s.device_id AND c.owner_id = s.owner_id
        AND c.cell + to_seconds(c.cell_s) > s.from_at AND c.cell < s.to_at
GROUP BY c.device_id, c.cell, c.owner_id
