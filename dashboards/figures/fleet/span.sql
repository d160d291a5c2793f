-- How much of the newest hour is over: what the longest watched device has of it.
WITH each AS (
    SELECT sum(hours) AS hours
    FROM paid
    GROUP BY cluster, device
)

SELECT max(hours) AS hours FROM each
