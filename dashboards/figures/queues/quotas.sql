-- The newest state of each quota of GPUs in the window's last day; MIG instances as parts of GPUs.
WITH of_day AS (
    SELECT
        *,
        max(ts) OVER (PARTITION BY cluster, kind, namespace, name) AS last_read,
        coalesce(try_cast(regexp_extract(resource, '/mig-([0-9]+)g', 1) AS INTEGER) / 7, 1) AS unit
    FROM quota
    WHERE
        ts >= greatest($since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 1 DAY)
        AND ts < $until
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
        AND ($namespace::VARCHAR IS null OR namespace = $namespace)
)

SELECT
    cluster,
    kind,
    CASE WHEN namespace = '' THEN name ELSE namespace || '/' || name END AS name,
    parent,
    resource,
    nominal * unit AS nominal,
    "limit" * unit AS "limit",
    used * unit AS used,
    borrowed * unit AS borrowed,
    pending,
    waiting * unit AS waiting,
    ts
FROM of_day
WHERE ts = last_read AND regexp_matches(resource, '(^|/|\.)(gpu|mig-|vgpu|npu|ascend)', 'i')
ORDER BY coalesce(waiting, 0) DESC, used DESC NULLS LAST, cluster ASC, kind ASC, name ASC
LIMIT $most
