-- The device samples without those that are left out; doubtful ones have no values (`doubted.sql`).
SELECT
    s.cluster,
    s.device,
    s.parent,
    s.vendor,
    s.model,
    s.profile,
    s.namespace,
    s.pod,
    s.sharers,
    s.interval_s,
    s.at_us,
    coalesce(d.home, split_part(s.node, ' via ', 1)) AS node,
    if(
        d.device IS null,
        COLUMNS('^(.*_(active|pct|bytes|w|mj|c|mhz|bps|age_s)|throttle_mask|xid|proc_count)$'),
        null
    ) AS "\0" -- noqa: RF05
FROM every_sample AS s
LEFT JOIN doubted AS d
    ON s.device = d.device AND s.node = d.node AND s.at_us // 300000000 = d.bucket
WHERE d.dropped IS DISTINCT FROM true
