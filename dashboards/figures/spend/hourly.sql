-- Dollars per hour, for run rate and forecast.
SELECT
    date_trunc('hour', bucket) AS hour,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM paid
GROUP BY ALL
ORDER BY hour ASC
