-- Objects of which something was refused, by kind.
SELECT
    kind,
    count(DISTINCT concat_ws('/', namespace, name)) AS objects
FROM rejection
WHERE last_seen >= $since::TIMESTAMP AND cluster = $cluster
GROUP BY kind
