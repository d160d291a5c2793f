-- The host metrics of some workloads' pods: cores, throttling, memory, network.
WITH requested AS (
    SELECT
        h.cluster,
        h.namespace,
        h.pod
    FROM (
        SELECT
            unnest(
                from_json(
                    $pods,
                    '[{"cluster": "VARCHAR", "namespace": "VARCHAR", "pod": "VARCHAR"}]'
                )
            ) AS h
    ) AS listed
)

SELECT
    p.cluster,
    p.namespace,
    p.pod,
    count(*) AS samples,
    avg(p.cpu_cores) AS cpu_cores,
    quantile_cont(p.cpu_cores, 0.95) AS cpu_p95,
    quantile_cont(p.cpu_cores, 0.99) AS cpu_p99,
    max(p.cpu_cores) AS cpu_peak,
    avg(p.cpu_throttled_ratio) AS throttled,
    quantile_cont(p.memory_bytes, 0.95) AS memory_p95,
    quantile_cont(p.memory_bytes, 0.99) AS memory_p99,
    max(p.memory_bytes) AS memory_peak,
    avg(p.net_rx_bps + p.net_tx_bps) AS net_bps
FROM pod_sample AS p
INNER JOIN requested AS a ON p.cluster = a.cluster AND p.namespace = a.namespace AND p.pod = a.pod
WHERE p.ts >= $since AND p.ts < $until
GROUP BY p.cluster, p.namespace, p.pod
ORDER BY p.cluster, p.namespace, p.pod
