-- How many physical GPUs (an instance counts by its slices) and nodes have samples.
SELECT
    coalesce(sum(weight), 0) AS gpus,
    count(DISTINCT node) AS nodes
FROM device
WHERE
    first_seen < $until::TIMESTAMP
    AND last_seen > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
