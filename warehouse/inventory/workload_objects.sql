-- Which objects had the name of a workload, and when, from their pods.
SELECT
    cluster,
    workload_kind,
    namespace,
    workload,
    workload_uid AS uid,
    min(coalesce(created_at, first_seen)) AS born,
    max(last_seen) AS seen_until
FROM pod
WHERE
    workload_uid IS NOT NULL
    AND workload IS NOT NULL
    AND last_seen >= $since::TIMESTAMP
GROUP BY cluster, workload_kind, namespace, workload, workload_uid
HAVING min(coalesce(created_at, first_seen)) IS NOT NULL
