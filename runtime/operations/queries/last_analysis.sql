-- When the last analysis by some analyzers that ended at a time was stored; null = there is none.
SELECT max(found_at) AS found_at
FROM finding
WHERE
    list_contains($analyzers::VARCHAR[], analyzer)
    AND found_at >= $until::TIMESTAMP
    AND found_at < $until::TIMESTAMP + INTERVAL 1 SECOND
