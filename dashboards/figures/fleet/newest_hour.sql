-- Each device's newest hour: its longest state, its cost per hour, and the idle part of the cost.
-- An hour that is not over yet is extrapolated.
WITH states AS (
    SELECT
        cluster,
        pool,
        node,
        device,
        any_value(model) AS model,
        state,
        sum(hours) AS hours,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        arg_max(workload, hours) AS workload,
        arg_max(team, hours) AS team
    FROM paid
    GROUP BY cluster, pool, node, device, state
)

SELECT
    s.cluster,
    s.pool,
    s.node,
    s.device,
    any_value(s.model) AS model,
    arg_max(s.state, (s.hours, s.state)) AS state,
    arg_max(s.workload, (s.workload <> '(platform)', s.hours)) AS workload,
    arg_max(s.team, (s.workload <> '(platform)', s.hours)) AS team,
    sum(s.gpu_hours) / any_value(span.hours) AS gpus,
    (sum(s.usd) / any_value(span.hours))::DOUBLE AS usd_h,
    coalesce(sum(s.gpu_hours) FILTER (WHERE s.state = 'idle'), 0) / any_value(span.hours)
        AS idle_gpus,
    coalesce(
        (sum(s.usd) FILTER (WHERE s.state = 'idle') / any_value(span.hours))::DOUBLE,
        (sum(s.usd) * 0)::DOUBLE
    ) AS idle_usd_h
FROM states AS s
CROSS JOIN span
GROUP BY s.cluster, s.pool, s.node, s.device
