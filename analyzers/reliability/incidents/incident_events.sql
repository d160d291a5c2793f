-- The events of nodes and pods that are evidence of an incident.
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
    AND kind IN ('Node', 'Pod')
    AND list_contains($reasons, reason)
ORDER BY ALL
