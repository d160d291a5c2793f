-- Simple buckets: one holder or none throughout, no startup, and device samples with at most one
-- pod name, so that all samples belong to the holder whatever name they have. Nine in ten buckets
-- are of this kind. The others are counted cell by cell (from `cells` on), by the same arithmetic
-- with its general terms.
WITH named_once AS (
    SELECT
        l.device_id,
        l.cell AS bucket,
        sum(l.idle_s) AS idle_s,
        sum(l.low_s) AS low_s,
        sum(l.busy_s) AS busy_s,
        sum(l.covered_s) AS covered_s,
        any_value(l.effective) AS effective
    FROM signal_seconds AS l
    ANTI JOIN crowds AS x ON l.device_id = x.device_id
    ANTI JOIN cuts AS c
        ON l.device_id = c.device_id AND time_bucket(INTERVAL 1 HOUR, l.cell) = c.hour_at
    GROUP BY l.device_id, l.cell
    HAVING count(*) = 1
),

quiet AS (
    SELECT
        n.*,
        CASE
            WHEN n.covered_s <= 0 THEN 0
            WHEN abs(n.covered_s - $step_s) <= 0.001 * $step_s THEN $step_s / n.covered_s
            ELSE least(1, $step_s / n.covered_s)
        END AS used
    FROM named_once AS n
    INNER JOIN spans AS s
        ON
            n.device_id = s.device_id AND n.bucket >= s.from_at
            AND n.bucket <= s.to_at - to_seconds($step_s)
)

SELECT
    q.device_id,
    q.bucket,
    coalesce(o.holder_id, 0) AS holder_id,
    q.idle_s * q.used AS idle_s,
    q.low_s * q.used AS low_s,
    q.busy_s * q.used AS busy_s,
    q.effective
FROM quiet AS q
LEFT JOIN owners AS o
    ON q.device_id = o.device_id AND q.bucket >= o.start_at AND q.bucket < o.end_at
