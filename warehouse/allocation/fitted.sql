-- Claims as they are. On overcommitted devices, claims are cut at each change and scaled down so
-- that they sum to one device.
SELECT
    c.cluster,
    c.device,
    c.pod_uid,
    c.start_at,
    c.end_at,
    c.namespace,
    c.pod,
    c.workload_kind,
    c.workload,
    c.team,
    c.share,
    c.attribution,
    c.rule
FROM charged AS c
ANTI JOIN crowded AS x ON c.cluster = x.cluster AND c.device = x.device
UNION ALL
SELECT
    c.cluster,
    c.device,
    c.pod_uid,
    x.start_at,
    x.end_at,
    c.namespace,
    c.pod,
    c.workload_kind,
    c.workload,
    c.team,
    c.share / greatest(1, x.claimed) AS share,
    CASE WHEN x.claimed > 1 + 1e-9 THEN 'estimated' ELSE c.attribution END AS attribution,
    c.rule
FROM charged AS c
INNER JOIN crowded AS x
    ON
        c.cluster = x.cluster AND c.device = x.device
        AND c.start_at <= x.start_at AND c.end_at >= x.end_at
