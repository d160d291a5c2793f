-- When the XID that a device shows changed. An exporter shows the last XID until it restarts, so a
-- constant XID is one event. `older` = it was there in the window's first sample of the device.
-- `last_pod` held the device in the ten minutes before: a scrape often comes after the pod's end.
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
        lag(coalesce(s.xid, 0)) OVER w AS before_code,
        last_value(CASE WHEN s.pod <> '' THEN s.namespace END IGNORE NULLS) OVER r
            AS last_namespace,
        last_value(CASE WHEN s.pod <> '' THEN s.pod END IGNORE NULLS) OVER r AS last_pod
    FROM sample AS s
    SEMI JOIN struck AS d ON s.cluster = d.cluster AND s.device = d.device
    WHERE s.ts >= $since AND s.ts < $until
    WINDOW
        w AS (PARTITION BY s.cluster, s.device ORDER BY s.ts),
        r AS (
            PARTITION BY s.cluster, s.device
            ORDER BY s.ts
            RANGE BETWEEN INTERVAL 10 MINUTE PRECEDING AND CURRENT ROW
        )
)

SELECT
    cluster,
    device,
    ts AS at,
    node,
    namespace,
    pod,
    coalesce(last_namespace, '') AS last_namespace,
    coalesce(last_pod, '') AS last_pod,
    code::INTEGER AS code,
    before_code IS null AS older
FROM xid_samples
WHERE code > 0 AND code IS DISTINCT FROM before_code
ORDER BY ALL
