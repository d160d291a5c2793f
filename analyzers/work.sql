-- What each pod's devices did in the hours in which they were mostly at work: duty, depth, memory,
-- power, traffic. Hours whose telemetry names no pod are the holder's of the whole hour, where
-- one pod held the whole device.
WITH owners AS (
    SELECT
        cluster,
        namespace,
        pod,
        max_by(workload_kind, start) AS workload_kind,
        max_by(workload, start) AS workload,
        max_by(team, start) AS team
    FROM allocation
    WHERE start < $until AND "end" > $since
    GROUP BY cluster, namespace, pod
),

engines AS (
    SELECT
        *,
        coalesce(gr_engine_active_mean, gpu_util_pct_mean / 100) AS engine
    FROM rollup_1h
    WHERE
        bucket >= $since AND bucket < $until AND act_n > 0
        AND low_s + busy_s >= 0.5 * covered_s
),

-- Read once: hours with a pod's name and hours without part ways below.
worked AS MATERIALIZED (
    SELECT
        cluster,
        bucket,
        device,
        namespace,
        pod,
        node,
        sharers,
        covered_s,
        conflict_s,
        act_mean,
        engine,
        sm_active_mean,
        tensor_active_mean,
        fp32_active_mean,
        dram_active_mean,
        power_w_mean,
        sm_clock_mhz_mean,
        mem_used_bytes_max,
        mem_used_bytes_min,
        pcie_bps_max,
        nvlink_bps_max,
        coalesce(
            engine >= $spin_engine AND tensor_active_mean < $spin_tensor
            AND dram_active_mean < $spin_dram
            AND coalesce(pcie_bps_max, 0) < $spin_bps
            AND coalesce(nvlink_bps_max, 0) < $spin_bps,
            false
        ) AS spins
    FROM engines
),

hours AS (
    SELECT *
    FROM worked
    WHERE pod <> ''
    UNION ALL
    SELECT w.* REPLACE (a.namespace AS namespace, a.pod AS pod) -- noqa: PRS
    FROM worked AS w
    INNER JOIN allocation AS a
        ON
            w.cluster = a.cluster AND w.device = a.device
            AND w.bucket >= a.start AND w.bucket + INTERVAL 1 HOUR <= a."end"
    WHERE w.pod = '' AND coalesce(a.share, 1.0) > 0.999
),

summed AS (
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
    FROM hours
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
INNER JOIN owners AS o ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
ORDER BY s.cluster, s.namespace, s.pod, s.device
