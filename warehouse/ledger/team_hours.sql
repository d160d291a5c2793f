-- The team of a bucket, of workloads that were not of one team all the time: that of most of it.
WITH several AS (
    SELECT holder_id
    FROM owners
    GROUP BY holder_id
    HAVING count(DISTINCT team) > 1
),

holder_hours AS (
    SELECT DISTINCT
        holder_id,
        bucket
    FROM states
),

parts AS (
    SELECT
        s.holder_id,
        s.bucket,
        o.team,
        sum(
            epoch(least(o.end_at, s.bucket + to_seconds($step_s)))
            - epoch(greatest(o.start_at, s.bucket))
        ) AS seconds
    FROM holder_hours AS s
    INNER JOIN several AS v ON s.holder_id = v.holder_id
    INNER JOIN owners AS o
        ON
            s.holder_id = o.holder_id
            AND s.bucket + to_seconds($step_s) > o.start_at AND s.bucket < o.end_at
    GROUP BY s.holder_id, s.bucket, o.team
)

SELECT
    holder_id,
    bucket,
    first(team ORDER BY seconds DESC, team ASC) AS team
FROM parts
GROUP BY holder_id, bucket
