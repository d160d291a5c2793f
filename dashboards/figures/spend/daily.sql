-- GPU-hours and dollars per day and state; `hours` is how much of the day is accounted.
SELECT
    date_trunc('day', bucket) AS day,
    state,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM paid
GROUP BY ALL
ORDER BY day ASC, state ASC
