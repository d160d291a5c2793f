-- Each device of the workload during the finding: number of samples, activity, power, memory.
SELECT
    r.device,
    any_value(r.node) AS node,
    any_value(r.model) AS model,
    sum(r.n) AS samples,
    round(sum(r.covered_s) / 3600.0, 3) AS covered_hours,
    round(sum(r.idle_s) / 3600.0, 3) AS idle_hours,
    max(r.act_max) AS activity_max,
    sum(r.power_w_mean * r.power_w_n) / nullif(sum(r.power_w_n), 0) AS power_w_mean,
    max(r.power_w_max) AS power_w_max,
    max(r.mem_used_bytes_max) AS mem_used_bytes_max
FROM rollup_5m AS r
INNER JOIN allocation AS a
    ON
        r.cluster = a.cluster
        AND r.device = a.device
        AND r.bucket < a."end"
        AND r.bucket + INTERVAL 5 MINUTE > a.start
WHERE
    a.cluster = $cluster
    AND a.namespace = $namespace
    AND a.workload_kind = $workload_kind
    AND a.workload = $workload
    AND r.bucket > $since::TIMESTAMP - INTERVAL 5 MINUTE
    AND r.bucket < $until::TIMESTAMP
GROUP BY r.device
ORDER BY r.device
