-- How much of the newest hour is accounted.
SELECT max(covered_s) / 3600 AS hours
FROM covered_hours
