-- Times at which pods wrote much, to a disk or over the network: checkpoints, as far as host
-- metrics show them. `who` is the hash of the pod's name, as in lives.sql.
SELECT
    hash(cluster, namespace, pod) AS who,
    epoch(ts) AS at_s,
    coalesce(interval_s, 60)::DOUBLE AS interval_s
FROM pod_sample
WHERE
    ts >= $since
    AND ts < $until
    AND coalesce(fs_write_bps, 0) + coalesce(net_tx_bps, 0) >= $burst_bps
