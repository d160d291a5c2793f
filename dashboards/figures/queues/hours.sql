-- GPUs that pods, and jobs without pods, waited for, and those allocated, free, idle and put to
-- effective use, and all that are paid for: the mean of each step's accounted time. Effective use
-- is null where a part of the allocated hours is not measured.
WITH steps AS (
    SELECT
        unnest(
            generate_series(
                $since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 1 SECOND, to_seconds($step_s)
            )
        ) AS step
),

requests AS (
    SELECT
        gpus,
        created_at,
        waited_until
    FROM gpu_requests
    UNION ALL BY NAME
    SELECT
        gpus,
        created_at,
        waited_until
    FROM job_requests
),

waited AS (
    SELECT
        s.step,
        sum(
            a.gpus
            * (
                epoch(
                    least(
                        coalesce(a.waited_until, $until::TIMESTAMP),
                        s.step + to_seconds($step_s),
                        $until::TIMESTAMP
                    )
                )
                - epoch(greatest(a.created_at, s.step))
            )
        ) / epoch(least(s.step + to_seconds($step_s), $until::TIMESTAMP) - s.step) AS waiting_gpus
    FROM steps AS s
    INNER JOIN requests AS a
        ON
            a.created_at < s.step + to_seconds($step_s)
            AND coalesce(a.waited_until, $until::TIMESTAMP) > s.step
    GROUP BY s.step
),

-- Sums with conditions over every row cost more.
paid_states AS (
    SELECT
        bucket,
        state,
        namespace <> '(platform)' AS allocated,
        sum(gpu_hours) AS gpu_hours,
        sum(measured_gpu_hours) AS measured_gpu_hours,
        sum(effective_gpu_hours) AS effective_gpu_hours
    FROM paid
    GROUP BY ALL
),

paid_hours AS (
    SELECT
        time_bucket(to_seconds($step_s), bucket, $since::TIMESTAMP) AS step,
        coalesce(sum(gpu_hours) FILTER (WHERE state = 'free'), 0) AS free_gpu_hours,
        coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
        sum(gpu_hours) AS paid_gpu_hours,
        coalesce(sum(gpu_hours) FILTER (WHERE allocated), 0) AS allocated_gpu_hours,
        coalesce(sum(measured_gpu_hours), 0) AS measured_gpu_hours,
        coalesce(sum(effective_gpu_hours), 0) AS effective_gpu_hours
    FROM paid_states
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
    coalesce(w.waiting_gpus, 0) AS waiting_gpus,
    coalesce(w.waiting_gpus, 0) + h.allocated_gpu_hours * 3600 / c.covered_s AS demand_gpus,
    h.free_gpu_hours * 3600 / c.covered_s AS free_gpus,
    h.idle_gpu_hours * 3600 / c.covered_s AS idle_gpus,
    h.paid_gpu_hours * 3600 / c.covered_s AS paid_gpus,
    h.allocated_gpu_hours * 3600 / c.covered_s AS allocated_gpus,
    CASE
        WHEN h.measured_gpu_hours >= $least_measured * h.allocated_gpu_hours
            THEN h.effective_gpu_hours * 3600 / c.covered_s
    END AS effective_gpus
FROM steps AS s
LEFT JOIN waited AS w ON s.step = w.step
LEFT JOIN paid_hours AS h ON s.step = h.step
LEFT JOIN covered AS c ON s.step = c.step
ORDER BY s.step ASC
