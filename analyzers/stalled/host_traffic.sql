-- The host metrics of some pods: one row per pod and stretch of time.
SELECT
    hash(cluster, namespace, pod) AS who,
    epoch(ts) AS at_s,
    coalesce(interval_s, 60)::DOUBLE AS interval_s,
    cpu_cores - coalesce(sidecar_cores, 0) AS cores,
    list_sum([fs_read_bps, net_rx_bps]) AS read_bps,
    list_sum([fs_write_bps, net_tx_bps]) AS write_bps
FROM pod_sample
WHERE
    ts >= $since AND ts < $until
    AND list_contains($pods, hash(cluster, namespace, pod))
ORDER BY ALL
