-- The names that filters offer, by GPU-hours.
WITH grouped AS (
    SELECT
        cluster,
        team,
        namespace,
        model,
        pool,
        sum(gpu_hours) AS gpu_hours
    FROM paid
    GROUP BY ALL
),

named AS (
    UNPIVOT grouped ON cluster, team, namespace, model, pool INTO NAME key VALUE name
)

SELECT
    key,
    name,
    -- Sums differ in their last digits from run to run: equal ones keep one order.
    round(sum(gpu_hours), 6) AS gpu_hours
FROM named
GROUP BY key, name
QUALIFY
    row_number() OVER (PARTITION BY key ORDER BY round(sum(gpu_hours), 6) DESC, name ASC)
    <= $most
ORDER BY key ASC, gpu_hours DESC, name ASC
