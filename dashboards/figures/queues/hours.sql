-- GPUs waited for, free GPUs, and allocated idle GPUs: the mean of each step.
WITH steps AS (
    SELECT
        unnest(
            generate_series(
                $since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 1 SECOND, to_seconds($step_s)
            )
        ) AS step
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
    INNER JOIN gpu_requests AS a
        ON
            a.created_at < s.step + to_seconds($step_s)
            AND coalesce(a.waited_until, $until::TIMESTAMP) > s.step
    GROUP BY s.step
),

paid_hours AS (
    SELECT
        time_bucket(to_seconds($step_s), bucket, $since::TIMESTAMP) AS step,
        coalesce(sum(gpu_hours) FILTER (WHERE state = 'free'), 0) AS free_gpu_hours,
        coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours
    FROM paid
    GROUP BY ALL
)

SELECT
    s.step AS at,
    coalesce(w.waiting_gpus, 0) AS waiting_gpus,
    h.free_gpu_hours * 3600 / epoch(least(s.step + to_seconds($step_s), $until::TIMESTAMP) - s.step)
        AS free_gpus,
    h.idle_gpu_hours * 3600 / epoch(least(s.step + to_seconds($step_s), $until::TIMESTAMP) - s.step)
        AS idle_gpus
FROM steps AS s
LEFT JOIN waited AS w ON s.step = w.step
LEFT JOIN paid_hours AS h ON s.step = h.step
ORDER BY s.step ASC
