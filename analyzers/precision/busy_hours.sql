-- Hours in which devices mostly worked. Shared devices show the work of all pods and are left out.
SELECT
    cluster,
    bucket,
    device,
    namespace,
    pod,
    node,
    covered_s,
    sm_active_mean,
    tensor_active_mean,
    fp32_active_mean,
    dram_active_mean
FROM rollup_1h
WHERE
    bucket >= $since AND bucket < $until AND act_n > 0
    AND low_s + busy_s >= 0.5 * covered_s AND coalesce(sharers, 1) <= 1
