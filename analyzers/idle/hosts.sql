-- What pods did on their hosts between given times: sums per part of a stretch and per time by
-- which they were known ($first + k * $step us, k from -$lead on).
SELECT
    s.member,
    greatest(floor((epoch_us(p.ts) - $first) / $step)::BIGINT + 1, -$lead) AS k,
    sum(p.cpu_cores - coalesce(p.sidecar_cores, 0)) AS cpu,
    count(p.cpu_cores) AS cpu_n,
    sum(p.net_bps) AS net,
    count(p.net_bps) AS net_n,
    sum(p.fs_bps) AS fs,
    count(p.fs_bps) AS fs_n,
    sum(p.io_pressure_ratio) AS io,
    count(p.io_pressure_ratio) AS io_n,
    count(*) FILTER (WHERE p.serves) AS served_n,
    count(p.requests_per_s) AS requests_n,
    max(epoch_us(p.ts)) FILTER (WHERE p.serves) AS served_us,
    max(epoch_us(p.ts)) FILTER (WHERE p.requests_held > 0) AS held_us,
    max(epoch_us(p.ts)) FILTER (WHERE p.is_load_unknown) AS unknown_load_us,
    arg_max(p.requests_waiting, p.ts) FILTER (WHERE p.requests_held > 0) AS waiting,
    arg_max(p.requests_running, p.ts) FILTER (WHERE p.requests_held > 0) AS running,
    arg_max(p.requests_swapped, p.ts) FILTER (WHERE p.requests_held > 0) AS swapped
FROM part AS s
INNER JOIN serving_load AS p
    ON
        s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
        AND s.start_at < p.ts AND s.end_at >= p.ts
WHERE p.ts >= $since AND p.ts < $until
GROUP BY ALL
ORDER BY s.member, k
