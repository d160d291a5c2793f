-- The devices of a stretch of looks; the newest look wins.
SELECT
    s.cluster,
    s.device,
    arg_max(s.parent, s.ts) AS parent,
    arg_max(s.node, s.ts) AS node,
    arg_max(s.vendor, s.ts) AS vendor,
    arg_max(s.model, s.ts) AS model,
    arg_max(s.profile, s.ts) AS profile,
    max(s.mem_used_bytes + s.mem_free_bytes + coalesce(s.mem_reserved_bytes, 0)) AS memory_bytes,
    arg_max(s.interval_s, s.ts) AS interval_s,
    min(s.ts) AS first_seen,
    max(s.ts + to_microseconds((coalesce(s.interval_s, 60) * 1000000)::BIGINT)) AS last_seen
FROM sample AS s
WHERE s.cluster = $cluster AND s.ts >= $first AND s.ts < $last
GROUP BY s.cluster, s.device
