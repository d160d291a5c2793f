-- Pods that share a device by time slicing, MPS or a vGPU scheduler, as the exporter names them.
SELECT
    h.cluster,
    h.device,
    h.namespace,
    h.pod,
    min(h.ts) AS first_ts,
    max(h.ts)
    + to_milliseconds((1250 * coalesce(any_value(d.interval_s), 60))::BIGINT) AS last_ts,
    avg(h.share) AS share
FROM holding AS h
LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
WHERE h.ts >= $since AND h.ts < $until
GROUP BY h.cluster, h.device, h.namespace, h.pod
