-- How many physical GPUs (an instance counts by its slices) and nodes showed themselves.
SELECT
    coalesce(sum(weight), 0) AS gpus,
    count(DISTINCT node) AS nodes
FROM device
WHERE
    first_seen < $end::TIMESTAMP
    AND last_seen > $start::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
