-- Sources that did not answer when they were last read, since a timestamp, and why.
SELECT
    s.collector,
    s.target,
    arg_max(s.error, s.ts) AS error
FROM scrape AS s
WHERE s.cluster = $cluster AND s.ts >= $since::TIMESTAMP
GROUP BY s.collector, s.target
HAVING NOT arg_max(s.up, s.ts)
ORDER BY s.collector, s.target
