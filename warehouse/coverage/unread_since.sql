-- Since when a cluster has telemetry, where no cursor that begins with $prefix says that what was
-- before is read; null = it is, or there is none.
SELECT min(d.first_seen) AS first
FROM device AS d
LEFT JOIN cursor AS c ON starts_with(c.source, $prefix)
WHERE d.cluster = $cluster AND c.source IS null
