-- What pods did on their hosts between given times: sums per part of a stretch and per time by
-- which they were known ($first + k * $step us, k from -$lead on).
SELECT
    s.member,
    greatest(floor((epoch_us(p.ts) - $first) / $step)::BIGINT + 1, -$lead) AS k,
    sum(p.cpu_cores - coalesce(p.sidecar_cores, 0)) AS cpu,
    count(p.cpu_cores) AS cpu_n,
    sum(p.net_rx_bps + p.net_tx_bps) AS net,
    count(p.net_rx_bps + p.net_tx_bps) AS net_n,
    sum(p.fs_write_bps) AS fs,
    count(p.fs_write_bps) AS fs_n,
    count(*) FILTER (WHERE p.requests_per_s > 0) AS served_n,
    count(p.requests_per_s) AS requests_n,
    max(epoch_us(p.ts)) FILTER (WHERE p.requests_per_s > 0) AS served_us
FROM part AS s
INNER JOIN pod_sample AS p
    ON
        s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
        AND s.start_at < p.ts AND s.end_at >= p.ts
WHERE p.ts >= $since AND p.ts < $until
GROUP BY ALL
ORDER BY s.member, k
