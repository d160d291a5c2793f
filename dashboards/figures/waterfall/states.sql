-- GPU-hours and dollars of the window by state.
SELECT
    state,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd
FROM paid
GROUP BY state
