-- The five minutes of the GPUs around an incident: those that its workloads held in that time,
-- those that its evidence names, and, where it has no workload, those of its nodes.
SELECT
    r.bucket,
    r.device,
    r.act_n,
    r.act_mean,
    r.power_w_n,
    r.power_w_mean,
    r.temp_c_max,
    r.sm_clock_mhz_mean,
    r.nvlink_bps_max,
    r.pcie_bps_max,
    list_contains($devices, r.device) AS named
FROM rollup_5m AS r
WHERE
    r.cluster = $cluster
    AND r.bucket >= $since
    AND r.bucket < $until
    AND (
        list_contains($devices, r.device)
        OR (len($workloads) = 0 AND list_contains($nodes, r.node))
        OR r.device IN (
            SELECT a.device
            FROM allocation AS a
            WHERE
                a.cluster = $cluster
                AND a.start < $until
                AND coalesce(a."end", $until::TIMESTAMP) > $since
                AND list_contains(
                    $workloads, a.namespace || '/' || a.workload_kind || '/' || a.workload
                )
        )
    )
