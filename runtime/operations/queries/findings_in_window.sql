-- What each analyzer but `$without` found in its last run, as far as it touches the window.
SELECT document
FROM latest_findings
WHERE
    start < $until::TIMESTAMP
    AND "end" > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
    AND NOT list_contains($without::VARCHAR[], analyzer)
ORDER BY id
