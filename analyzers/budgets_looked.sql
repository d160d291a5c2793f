-- The clusters whose disruption budgets somebody could read lately, though there may be none.
SELECT DISTINCT cluster
FROM scrape
WHERE
    ts >= $since
    AND ts < $until
    AND collector = 'kubernetes'
    AND up
    AND ends_with(target, '/poddisruptionbudgets')
