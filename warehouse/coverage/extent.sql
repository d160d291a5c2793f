-- From the first sample of any device to the end of the last.
SELECT
    min(first_seen) AS first,
    max(last_seen) AS last
FROM device
WHERE $cluster::VARCHAR IS null OR cluster = $cluster
