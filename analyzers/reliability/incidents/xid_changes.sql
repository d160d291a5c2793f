-- When the XID that a device shows changed. An exporter shows the last XID until it restarts, so a
-- constant XID is one event. `older` = it was there in the window's first sample of the device.
WITH struck AS (
    SELECT DISTINCT
        cluster,
        device
    FROM sample
    WHERE ts >= $since AND ts < $until AND xid > 0
),

xid_samples AS (
    SELECT
        s.cluster,
        s.device,
        s.ts,
        coalesce(s.node, '') AS node,
        coalesce(s.namespace, '') AS namespace,
        coalesce(s.pod, '') AS pod,
        coalesce(s.xid, 0) AS code,
        lag(coalesce(s.xid, 0)) OVER w AS before_code
    FROM sample AS s
    SEMI JOIN struck AS d ON s.cluster = d.cluster AND s.device = d.device
    WHERE s.ts >= $since AND s.ts < $until
    WINDOW w AS (PARTITION BY s.cluster, s.device ORDER BY s.ts)
)

SELECT
    cluster,
    device,
    ts AS at,
    node,
    namespace,
    pod,
    code::INTEGER AS code,
    before_code IS null AS older
FROM xid_samples
WHERE code > 0 AND code IS DISTINCT FROM before_code
ORDER BY ALL
