-- Quotas and queues when they were last read within the hour before a given time; a row per quota
-- and resource. A Kueue resource is `name@flavor`.
SELECT
    cluster,
    kind,
    coalesce(namespace, '') AS namespace,
    name,
    split_part(resource, '@', 1) AS resource,
    split_part(resource, '@', 2) AS flavor,
    parent,
    nominal,
    used,
    "limit",
    lending
FROM quota
WHERE ts <= $until::TIMESTAMP AND ts > $until::TIMESTAMP - INTERVAL 1 HOUR
QUALIFY ts = max(ts) OVER (PARTITION BY cluster, kind, namespace, name)
ORDER BY cluster, kind, namespace, name, resource
