-- What part of a shared device each pod used, per hour: the greater of compute and memory, as for
-- requests. Whole hours, so that every window over the same samples gives the same result. Values
-- that are equal for all pods in every scrape of an hour are copies of the device's, as exporters
-- print them that read no processes: what each pod used is unknown.
WITH holding_hours AS (
    SELECT
        cluster,
        device,
        namespace,
        pod,
        ts,
        time_bucket(INTERVAL 1 HOUR, ts) AS hour_at,
        gpu_util_pct,
        mem_used_bytes
    FROM holding
    WHERE
        ts >= time_bucket(INTERVAL 1 HOUR, $since::TIMESTAMP)
        AND ts < time_bucket(INTERVAL 1 HOUR, $until::TIMESTAMP) + INTERVAL 1 HOUR
),

scrapes AS (
    SELECT
        cluster,
        device,
        hour_at,
        min(gpu_util_pct) = max(gpu_util_pct) AS is_util_equal,
        min(mem_used_bytes) = max(mem_used_bytes) AS is_memory_equal
    FROM holding_hours
    GROUP BY cluster, device, hour_at, ts
    HAVING min((namespace, pod)) <> max((namespace, pod))
),

copied AS (
    SELECT
        cluster,
        device,
        hour_at,
        bool_and(is_util_equal) AS util,
        bool_and(is_memory_equal) AS memory
    FROM scrapes
    GROUP BY cluster, device, hour_at
)

SELECT
    h.cluster,
    h.device,
    h.namespace,
    h.pod,
    h.hour_at,
    greatest(
        avg(CASE WHEN c.util IS NOT true THEN h.gpu_util_pct END) / 100,
        avg(CASE WHEN c.memory IS NOT true THEN h.mem_used_bytes END)
        / any_value(d.memory_bytes)
    ) AS used
FROM holding_hours AS h
LEFT JOIN copied AS c
    ON h.cluster = c.cluster AND h.device = c.device AND h.hour_at = c.hour_at
LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
GROUP BY h.cluster, h.device, h.namespace, h.pod, h.hour_at
