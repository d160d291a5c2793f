-- The speed of each device while its pod kept it busy: hours of at least half an hour's work, the
-- mean SM clock in them, and how many had thermal or power-brake throttling.
SELECT
    cluster,
    device,
    namespace,
    pod,
    any_value(node) AS node,
    any_value(model) AS model,
    sum(busy_s) / 3600 AS busy_hours,
    sum(sm_clock_mhz_mean * busy_s) / sum(busy_s) AS clock_mhz,
    coalesce(sum(busy_s) FILTER (WHERE throttle_mask & $throttles <> 0), 0) / 3600 AS hot_hours,
    bit_or(throttle_mask) AS mask,
    max(temp_c_max) AS temp_c
FROM rollup_1h
WHERE
    bucket >= $since
    AND bucket < $until
    AND sm_clock_mhz_mean > 0
    AND busy_s >= 1800
    AND parent IS null
    AND pod <> ''
GROUP BY cluster, device, namespace, pod
ORDER BY cluster, device, namespace, pod
