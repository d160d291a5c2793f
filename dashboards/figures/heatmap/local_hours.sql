-- Paid hours by team and state, with the hour of the week in the office's zone.
WITH summed AS (
    SELECT
        timezone($zone, timezone('UTC', bucket)) AS local_time,
        team,
        state,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd
    FROM paid
    GROUP BY bucket, team, state
)

SELECT
    local_time,
    isodow(local_time)::INTEGER AS weekday,
    hour(local_time)::INTEGER AS hour,
    weekday <= 5 AND hour >= $first AND hour < $last AS in_office,
    team,
    state,
    gpu_hours,
    usd
FROM summed
