-- What each analyzer found in its last run, as far as it touches the window.
WITH last AS (
    SELECT
        analyzer,
        cluster,
        max(found_at) AS found_at
    FROM finding
    GROUP BY analyzer, cluster
)

SELECT f.document
FROM finding AS f
INNER JOIN last
    ON
        f.analyzer = last.analyzer
        AND f.cluster = last.cluster
        AND f.found_at = last.found_at
WHERE
    f.start < $until::TIMESTAMP
    AND f."end" > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR f.cluster = $cluster)
ORDER BY f.id
