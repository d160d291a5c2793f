-- When the XID that a device shows changed. Exporters latch the last one until they restart, so a
-- constant XID is one event; one in the window's first hour is older. Of several XIDs in an hour
-- the greatest is used.
WITH struck AS (
    SELECT DISTINCT
        cluster,
        device
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until AND xid_max > 0
),

seen AS (
    SELECT
        r.cluster,
        r.device,
        r.bucket,
        any_value(r.node) AS node,
        coalesce(max(r.xid_max), 0) AS xid,
        arg_max(r.namespace, r.xid_max) AS namespace,
        arg_max(r.pod, r.xid_max) AS pod
    FROM rollup_1h AS r
    SEMI JOIN struck AS s ON r.cluster = s.cluster AND r.device = s.device
    WHERE r.bucket >= $since AND r.bucket < $until
    GROUP BY r.cluster, r.device, r.bucket
)

SELECT
    cluster,
    device,
    coalesce(node, '') AS node,
    bucket AS at,
    xid::INTEGER AS code,
    coalesce(namespace, '') AS namespace,
    coalesce(pod, '') AS pod,
    lag(xid) OVER w IS null AND bucket <= $since AS older
FROM seen
WINDOW w AS (PARTITION BY cluster, device ORDER BY bucket)
QUALIFY xid > 0 AND xid IS DISTINCT FROM lag(xid) OVER w
ORDER BY cluster, device, bucket
