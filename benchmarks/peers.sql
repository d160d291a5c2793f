-- One synthetic utilisation sample per device and step: jobs of 6 to 66 hours follow one another
-- on every device; half compute, a quarter hold the device idle, the rest is low or free.
WITH device AS (
    SELECT
        d,
        'GPU-' || lpad(d::VARCHAR, 6, '0') || '-' || md5(d::VARCHAR)[:12] AS device,
        'node-' || lpad((d // 8)::VARCHAR, 5, '0') AS node,
        hash(d) % 9999 AS phase,
        72 + hash(d, 1) % 720 AS run_steps
    FROM range($devices::BIGINT) AS r (d)
),

job AS (
    SELECT
        device.*,
        steps.step,
        hash(device.d, (steps.step + device.phase) // device.run_steps) AS job_hash
    FROM device CROSS JOIN range($steps::BIGINT) AS steps (step)
),

kind AS (
    SELECT
        job.*,
        job.job_hash % 100 AS kind,
        hash(job.d, job.step, 2) AS noise
    FROM job
)

SELECT
    make_timestamp($start_us::BIGINT + step * $step_us::BIGINT) AS ts,
    device,
    node,
    if(kind < 90, 'team-' || (job_hash // 100 % 40)::VARCHAR, '') AS namespace,
    if(kind < 90, 'job-' || (job_hash // 100 % 1000000)::VARCHAR, '') AS pod,
    CASE
        WHEN kind < 50 THEN 60 + noise % 41
        WHEN kind < 65 THEN noise % 25
        ELSE 0
    END::UTINYINT AS util
FROM kind
ORDER BY device, ts
