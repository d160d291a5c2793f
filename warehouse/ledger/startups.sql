-- A startup lasts from a pod's birth to its first activity, at most `startup_s`.
WITH born AS (
    SELECT DISTINCT
        device_id,
        owner_id,
        namespace,
        pod,
        born
    FROM owners
    WHERE born + to_seconds($startup_s) > $since
),

watched AS (
    SELECT
        *,
        unnest(
            generate_series(
                time_bucket(INTERVAL 5 MINUTE, born),
                born + to_seconds($startup_s),
                INTERVAL 5 MINUTE
            )
        ) AS bucket
    FROM born
),

active AS (
    SELECT
        w.owner_id,
        w.born,
        min(w.bucket) AS bucket
    FROM watched AS w
    INNER JOIN fine AS f
        ON w.device_id = f.device_id AND w.bucket = f.bucket
    WHERE
        coalesce(f.low_s, 0) + coalesce(f.busy_s, 0) > 0
        AND (f.pod = '' OR (f.namespace = w.namespace AND f.pod = w.pod))
    GROUP BY w.owner_id, w.born
)

SELECT
    b.owner_id,
    b.born,
    least(b.born + to_seconds($startup_s), a.bucket + INTERVAL 5 MINUTE) AS ready
FROM born AS b
LEFT JOIN active AS a ON b.owner_id = a.owner_id AND b.born = a.born
