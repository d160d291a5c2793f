-- The telemetry of the subject's devices, step by step. If several workloads had the device, only
-- the subject's own time.
SELECT
    r.cluster,
    r.bucket,
    r.device,
    r.act_n,
    r.act_mean,
    r.act_max,
    r.mem_used_bytes_n,
    r.mem_used_bytes_mean,
    r.power_w_n,
    r.power_w_mean,
    r.temp_c_max,
    r.sm_clock_mhz_mean,
    r.xid_max
FROM rolled AS r
WHERE
    r.bucket >= $since
    AND r.bucket < $until
    AND ($cluster::VARCHAR IS null OR r.cluster = $cluster)
    AND ($node::VARCHAR IS null OR (r.node = $node AND r.parent IS null))
    AND ($device::VARCHAR IS null OR r.device = $device)
    AND (
        $workload::VARCHAR IS null
        OR EXISTS (
            SELECT 1
            FROM allocations AS h
            WHERE
                h.cluster = r.cluster
                AND h.device = r.device
                AND h.start < r.bucket + to_seconds($sample_every_s)
                AND h."end" > r.bucket
                AND (r.pod = '' OR (r.namespace = h.namespace AND r.pod = h.pod))
        )
    )
