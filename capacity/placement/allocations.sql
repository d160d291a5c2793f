-- Which workload had each device allocated between two times, and the device's properties.
SELECT
    a.cluster,
    a.device,
    a.namespace,
    a.workload_kind,
    a.workload,
    a.team,
    a.attribution,
    a.pod,
    -- A source without UIDs hashes the name (and the creation time): that is no uid of the API.
    CASE WHEN regexp_full_match(a.pod_uid, '[0-9a-f]{32}') THEN '' ELSE a.pod_uid END AS pod_uid,
    d.node,
    d.gpu_model,
    d.profile,
    d.parent,
    epoch_us(a.start) AS start_us,
    epoch_us(a."end") AS end_us,
    coalesce(a.share, 1.0) AS share,
    coalesce(d.weight, 1.0) AS weight,
    d.interval_s::DOUBLE AS interval_s
FROM allocation AS a
LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
WHERE a.start < $until AND coalesce(a."end", $until) >= $since
ORDER BY a.cluster, a.device, a.start, a.pod_uid
