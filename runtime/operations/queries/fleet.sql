-- How many physical GPUs and nodes have samples.
SELECT
    count(DISTINCT (cluster, coalesce(parent, device))) AS gpus,
    count(DISTINCT node) AS nodes
FROM device
WHERE
    first_seen < $until::TIMESTAMP
    AND last_seen > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
