-- What each analyzer but `$without` found in its last run, as far as it touches the window, and
-- which part of it is in the window.
SELECT
    f.document,
    coalesce(p.part, 1) AS part
FROM latest_findings AS f
LEFT JOIN finding_parts AS p ON f.cluster = p.cluster AND f.id = p.id
WHERE
    f.start < $until::TIMESTAMP
    AND f."end" > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR f.cluster = $cluster)
    AND NOT list_contains($without::VARCHAR[], f.analyzer)
ORDER BY f.id
