-- CPU and memory that pods requested on each node at a given time.
SELECT
    cluster,
    node,
    sum(cpu_request_milli) AS cpu_milli,
    sum(memory_request_bytes) AS memory_bytes
FROM pod
WHERE
    node IS NOT null AND coalesce(scheduled_at, started_at, created_at, first_seen) < $until
    AND coalesce(finished_at, last_seen + INTERVAL 10 MINUTE) >= $until
GROUP BY cluster, node
ORDER BY cluster, node
