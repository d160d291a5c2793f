-- GPUs and dollars per hour by state, on the mean of each step.
WITH stepped AS (
    SELECT
        time_bucket(to_seconds($step_s), bucket, $since::TIMESTAMP) AS step,
        state,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd
    FROM subject
    GROUP BY ALL
)

SELECT
    step AS at,
    least(step + to_seconds($step_s), $until::TIMESTAMP) AS later,
    state,
    gpu_hours,
    usd,
    gpu_hours * 3600 / epoch(least(step + to_seconds($step_s), $until::TIMESTAMP) - step) AS gpus,
    usd::DOUBLE * 3600 / epoch(least(step + to_seconds($step_s), $until::TIMESTAMP) - step) AS usd_h
FROM stepped
ORDER BY step ASC, state ASC
