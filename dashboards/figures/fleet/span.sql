-- How much of the newest hour is over: the largest accounted part of it of any device.
WITH each AS (
    SELECT sum(hours) AS hours
    FROM paid
    GROUP BY cluster, device
)

SELECT max(hours) AS hours FROM each
