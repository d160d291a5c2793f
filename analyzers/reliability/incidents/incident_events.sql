-- The events of nodes, pods and workloads that are evidence of an incident.
SELECT
    cluster,
    coalesce(uid, '') AS uid,
    ts AS at,
    kind,
    coalesce(namespace, '') AS namespace,
    name,
    reason,
    coalesce(message, '') AS message
FROM event
WHERE
    ts >= $since
    AND ts < $until
    AND name IS NOT null
    AND list_contains($kinds, kind)
    AND list_contains($reasons, reason)
ORDER BY ALL
