-- Dollars per hour, and the usual dollars: the median of the same hour in earlier weeks.
WITH hourly AS (
    SELECT
        date_trunc('hour', bucket) AS hour,
        sum(usd) AS usd,
        sum(usd) FILTER (WHERE state IN ('idle', 'lost')) AS wasted_usd
    FROM paid
    GROUP BY ALL
)

SELECT
    h.hour,
    h.usd::DOUBLE AS usd,
    h.wasted_usd::DOUBLE AS wasted_usd,
    median(b.usd)::DOUBLE AS usual_usd,
    count(b.hour) AS weeks
FROM hourly AS h
LEFT JOIN hourly AS b
    ON
        h.hour > b.hour
        AND b.hour >= $comparable
        AND dayofweek(b.hour) = dayofweek(h.hour)
        AND hour(b.hour) = hour(h.hour)
WHERE h.hour >= $shown
GROUP BY ALL
ORDER BY h.hour ASC
