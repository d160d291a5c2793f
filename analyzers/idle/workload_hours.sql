-- Per workload the hours before $before (at most $until) in which it had devices allocated, in no
-- order, and whether it was active in them: a device from the exit threshold on, a busy or recently
-- used kernel, or requests.
-- One reading of the hour that the power does not confirm is none: nodes check their GPUs.
-- An item of `hours` is 2 * (hours since 1970), and 1 more where it was active: they are millions,
-- and with four names each they cost more than all of the rest. So the number of a workload and an
-- hour is one integer (`hour_key`), and `last_hour` is the last whole one of an allocation.
WITH idle_power AS (
    SELECT
        unnest($models) AS gpu_model,
        unnest($limits_w) AS limit_w
),

holders AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        a.pod,
        a.device,
        p.limit_w,
        a.start AS from_at,
        least(coalesce(a."end", $until), $until) - INTERVAL 1 HOUR AS last_hour,
        dense_rank() OVER (ORDER BY a.cluster, a.namespace, a.workload_kind, a.workload) AS number
    FROM allocation AS a
    LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    LEFT JOIN idle_power AS p ON d.gpu_model = p.gpu_model AND d.parent IS null
    WHERE a.start < $until AND coalesce(a."end", $until) > $since
),

device_hours AS (
    SELECT
        (a.number << 32) + epoch_us(r.bucket) // 3600000000 AS hour_key,
        coalesce(
            bool_or(
                r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0
                AND NOT coalesce(
                    r.power_w_max <= a.limit_w
                    AND r.act_mean * r.act_n - r.act_max < $exit_threshold,
                    false
                )
            ), false
        ) AS computes
    FROM holders AS a
    INNER JOIN rollup_1h AS r
        ON
            a.cluster = r.cluster AND a.device = r.device
            AND a.from_at <= r.bucket AND a.last_hour >= r.bucket
    WHERE r.bucket >= $since AND r.bucket < $before AND r.act_n > 0
    GROUP BY hour_key
),

pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        number
    FROM holders
),

intents AS (
    SELECT (p.number << 32) + epoch_us(n.ts) // 3600000000 AS hour_key
    FROM notebook_sample AS n
    INNER JOIN pods AS p ON n.cluster = p.cluster AND n.namespace = p.namespace AND n.pod = p.pod
    WHERE
        n.ts >= $since AND n.ts < $until
        AND (
            n.busy_kernels > 0
            OR n.last_kernel_activity > n.ts - INTERVAL 10 MINUTE
            OR n.last_terminal_activity > n.ts - INTERVAL 10 MINUTE
        )
    UNION
    SELECT (p.number << 32) + epoch_us(s.ts) // 3600000000 AS hour_key
    FROM serving_load AS s
    INNER JOIN pods AS p ON s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
    WHERE s.ts >= $since AND s.ts < $until AND s.is_requested
),

workloads AS (
    SELECT DISTINCT
        number,
        cluster,
        namespace,
        workload_kind,
        workload
    FROM holders
),

lists AS (
    SELECT
        h.hour_key >> 32 AS number,
        list(
            2 * (h.hour_key & 4294967295)
            + CASE WHEN h.computes OR i.hour_key IS NOT null THEN 1 ELSE 0 END
        ) AS hours
    FROM device_hours AS h
    LEFT JOIN intents AS i ON h.hour_key = i.hour_key
    GROUP BY h.hour_key >> 32
)

SELECT
    w.cluster,
    w.namespace,
    w.workload_kind,
    w.workload,
    l.hours
FROM lists AS l
INNER JOIN workloads AS w ON l.number = w.number
ORDER BY l.number
