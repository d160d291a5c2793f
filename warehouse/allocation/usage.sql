-- What part of a shared device each pod used, per hour: the greater of compute and memory, as for
-- requests. Whole hours, so that every window over the same samples gives the same result.
SELECT
    h.cluster,
    h.device,
    h.namespace,
    h.pod,
    time_bucket(INTERVAL 1 HOUR, h.ts) AS hour_at,
    greatest(
        avg(h.gpu_util_pct) / 100, avg(h.mem_used_bytes) / any_value(d.memory_bytes)
    ) AS used
FROM holding AS h
LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
WHERE
    h.ts >= time_bucket(INTERVAL 1 HOUR, $since::TIMESTAMP)
    AND h.ts < time_bucket(INTERVAL 1 HOUR, $until::TIMESTAMP) + INTERVAL 1 HOUR
GROUP BY h.cluster, h.device, h.namespace, h.pod, hour_at
