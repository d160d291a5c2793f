-- Which kinds of findings there are, with and without those that are snoozed.
SELECT
    analyzer,
    kind,
    evidence,
    count(*) AS findings,
    count(*) FILTER (WHERE snoozed_until > $until::TIMESTAMP) AS snoozed
FROM listed
GROUP BY ALL
ORDER BY ALL
