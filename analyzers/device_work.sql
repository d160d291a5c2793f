-- The measures of each pod's devices in the hours in which they mostly worked: duty, depth, memory,
-- power, traffic.
WITH summed AS (
    SELECT
        cluster,
        namespace,
        pod,
        device,
        any_value(node) AS node,
        max(sharers) AS sharers,
        sum(covered_s) AS work_s,
        sum(conflict_s) AS conflict_s,
        min(bucket) AS first_hour,
        max(bucket) AS last_hour,
        avg(act_mean) AS act,
        max(act_mean) AS act_peak,
        avg(engine) AS engine,
        avg(sm_active_mean) AS sm,
        max(sm_active_mean) AS sm_peak,
        avg(tensor_active_mean) AS tensor,
        avg(fp32_active_mean) AS fp32,
        avg(dram_active_mean) AS dram,
        max(dram_active_mean) AS dram_peak,
        avg(power_w_mean) AS power_w,
        avg(sm_clock_mhz_mean) AS clock_mhz,
        max(mem_used_bytes_max) AS mem_most,
        min(mem_used_bytes_min) AS mem_least,
        avg(pcie_bps_max) AS pcie_bps,
        avg(nvlink_bps_max) AS nvlink_bps,
        sum(CASE WHEN spins THEN covered_s ELSE 0 END) AS spin_s,
        avg(CASE WHEN spins THEN power_w_mean END) AS spin_w
    FROM pod_hours
    GROUP BY cluster, namespace, pod, device
)

SELECT
    s.*,
    o.workload_kind,
    o.workload,
    o.team,
    d.gpu_model,
    d.parent,
    d.profile,
    d.memory_bytes,
    coalesce(d.weight, 1.0) AS weight
FROM summed AS s
INNER JOIN device_owners AS o
    ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
ORDER BY s.cluster, s.namespace, s.pod, s.device
