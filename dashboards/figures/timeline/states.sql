-- GPUs and dollars per hour by state, on the mean of each step's accounted time.
WITH stepped AS (
    SELECT
        time_bucket(to_seconds($step_s), bucket, $since::TIMESTAMP) AS step,
        state,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd
    FROM subject
    GROUP BY ALL
),

covered AS (
    SELECT
        time_bucket(to_seconds($step_s), hour, $since::TIMESTAMP) AS step,
        sum(covered_s) AS covered_s
    FROM covered_hours
    GROUP BY ALL
)

SELECT
    s.step AS at,
    least(s.step + to_seconds($step_s), $until::TIMESTAMP) AS later,
    s.state,
    s.gpu_hours,
    s.usd,
    s.gpu_hours * 3600 / c.covered_s AS gpus,
    s.usd::DOUBLE * 3600 / c.covered_s AS usd_h
FROM stepped AS s
INNER JOIN covered AS c ON s.step = c.step
ORDER BY s.step ASC, s.state ASC
