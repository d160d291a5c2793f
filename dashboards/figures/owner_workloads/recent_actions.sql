-- Actions on an owner's workloads that were not undone: the newest first.
SELECT
    action AS id,
    cluster,
    ts AS at,
    concat_ws('/', nullif(namespace, ''), workload_kind, workload) AS subject,
    owner,
    namespace,
    verb,
    policy,
    result,
    why,
    freed_gpus,
    restored_by,
    restored_at,
    lost
FROM acted
WHERE
    (list_contains($owners, owner) OR list_contains($owners, namespace))
    AND ts >= $oldest
ORDER BY ts DESC, action ASC
LIMIT $most
