-- GPUs and dollars per hour by state, of the whole hour, so that they sum to what was paid.
SELECT
    p.state,
    sum(p.gpu_hours) / any_value(span.hours) AS gpus,
    sum(p.gpu_hours) AS gpu_hours,
    sum(p.usd) AS usd,
    (sum(p.usd) / any_value(span.hours))::DECIMAL(18, 4) AS usd_h
FROM paid AS p
CROSS JOIN span
GROUP BY p.state
ORDER BY gpus DESC, p.state ASC
