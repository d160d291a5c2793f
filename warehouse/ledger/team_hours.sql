-- The team of a bucket, of workloads whose pods were not all of one team: a name was used again.
WITH several AS (
    SELECT holder_id
    FROM owners
    GROUP BY holder_id
    HAVING count(DISTINCT team) > 1
)

SELECT
    s.holder_id,
    s.bucket,
    min(o.team) AS team
FROM states AS s
INNER JOIN several AS v ON s.holder_id = v.holder_id
INNER JOIN owners AS o
    ON
        s.holder_id = o.holder_id
        AND s.bucket + to_seconds($step_s) > o.start_at AND s.bucket < o.end_at
GROUP BY s.holder_id, s.bucket
