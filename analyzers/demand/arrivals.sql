-- GPUs requested in each stretch of the lead time, where any were.
SELECT
    cluster,
    time_bucket(to_seconds($lead_s), coalesce(created_at, scheduled_at, first_seen)) AS bucket,
    sum(gpu_request) AS gpus
FROM pod
WHERE
    gpu_request > 0
    AND coalesce(gpu_resource, '') NOT LIKE '%/mig-%'
    AND coalesce(created_at, scheduled_at, first_seen) >= $since::TIMESTAMP
    AND coalesce(created_at, scheduled_at, first_seen) < $until::TIMESTAMP
GROUP BY ALL
ORDER BY ALL
