-- Events of nodes, and of pods that were lost with a node. One without the object's name explains
-- nothing.
SELECT
    cluster,
    ts,
    kind,
    namespace,
    name,
    reason
FROM event
WHERE
    ts >= $since - INTERVAL 1 HOUR
    AND ts < $until
    AND name IS NOT null
    AND (
        (kind = 'Node' AND (list_contains($reasons, reason) OR reason = 'NodeReady'))
        OR (kind = 'Pod' AND list_contains($reasons, reason))
    )
ORDER BY cluster, ts, kind, name, reason
