-- What the pods did on the host during each stretch: cores, bytes a second, requests. A look speaks
-- for the time before it.
SELECT
    s.span,
    count(*) AS looks,
    max(p.cpu_cores) AS cpu_most,
    avg(p.cpu_cores) AS cpu_cores,
    avg(p.net_rx_bps + p.net_tx_bps) AS net_bps,
    avg(p.fs_write_bps) AS fs_write_bps,
    avg((p.requests_per_s > 0)::INTEGER) AS served_share,
    max(epoch_us(p.ts)) FILTER (WHERE p.requests_per_s > 0) AS served_us,
    count(DISTINCT p.pod) FILTER (WHERE p.cpu_cores IS NOT null) AS pods_cpu,
    count(DISTINCT p.pod) FILTER (WHERE p.requests_per_s IS NOT null) AS pods_requests
FROM idle_span AS s
INNER JOIN pod_sample AS p
    ON
        s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
        AND s.start_at < p.ts AND s.end_at >= p.ts
WHERE p.ts >= $since AND p.ts < $until
GROUP BY s.span
ORDER BY s.span
