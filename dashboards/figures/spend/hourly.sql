-- Dollars per hour, for run rate and forecast; by team where a parameter says so.
SELECT
    if($by_team, team, NULL) AS team,
    date_trunc('hour', bucket) AS hour,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM paid
GROUP BY ALL
ORDER BY hour ASC
