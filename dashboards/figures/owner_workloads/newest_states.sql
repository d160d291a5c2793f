-- The state in which each workload of the window, an hour, had most of its GPU-hours.
WITH state_hours AS (
    SELECT
        cluster,
        workload,
        state,
        sum(gpu_hours) AS gpu_hours
    FROM paid
    WHERE list_contains($owners, team) OR list_contains($owners, namespace)
    GROUP BY ALL
)

SELECT
    cluster,
    workload,
    arg_max(state, (gpu_hours, state)) AS state
FROM state_hours
GROUP BY cluster, workload
