-- The clusters whose disruption budgets were polled lately, though there may be none.
SELECT DISTINCT cluster
FROM scrape
WHERE
    ts >= $since
    AND ts < $until
    AND collector = 'kubernetes'
    AND up
    AND ends_with(target, '/poddisruptionbudgets')
