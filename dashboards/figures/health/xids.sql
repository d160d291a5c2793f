-- XIDs by device, the newest first. Exporters show the last XID until they restart: the hours are
-- how long it was shown, not how often it occurred. Of several in an hour the greatest is kept.
SELECT
    r.cluster,
    any_value(d.node) AS node,
    r.device,
    any_value(d.model) AS model,
    r.xid_max::INTEGER AS xid,
    min(r.bucket) AS first_hour,
    max(r.bucket) AS last_hour,
    count(DISTINCT r.bucket) AS hours,
    arg_min(nullif(r.namespace || '/' || r.pod, '/'), r.bucket) AS pod
FROM rollup_1h AS r
INNER JOIN devices AS d ON r.cluster = d.cluster AND r.device = d.device
WHERE r.bucket >= $since AND r.bucket < $until AND r.xid_max > 0
GROUP BY r.cluster, r.device, r.xid_max
ORDER BY first_hour DESC, node ASC, r.device ASC
LIMIT $most
