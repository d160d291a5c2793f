-- When the first inventory of each cluster was read.
SELECT
    cluster,
    epoch_us(min(first_seen)) AS first_us
FROM pod
WHERE first_seen IS NOT NULL
GROUP BY cluster
ORDER BY cluster
