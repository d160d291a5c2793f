-- Hours in which a pod's GPUs work little while its host receives much data. Collectives send as
-- much as they receive, so input is the received amount beyond the sent amount, or the reads from
-- disks.
WITH hosts AS (
    SELECT
        cluster,
        namespace,
        pod,
        date_trunc('hour', ts) AS hour,
        greatest(
            coalesce(avg(fs_read_bps), 0), coalesce(avg(net_rx_bps) - avg(net_tx_bps), 0)
        ) AS input_bps
    FROM pod_sample
    WHERE ts >= $since AND ts < $until AND (fs_read_bps IS NOT null OR net_rx_bps IS NOT null)
    GROUP BY ALL
),

gpus AS (
    SELECT
        cluster,
        namespace,
        pod,
        bucket AS hour,
        count(DISTINCT device) AS gpus,
        sum(covered_s) AS seconds,
        sum(covered_s * (1 - act_mean)) AS rest_s,
        avg(act_mean) AS act
    FROM rollup_1h
    WHERE
        bucket >= $since AND bucket < $until
        AND pod <> '' AND act_n > 0 AND low_s + busy_s >= 0.5 * covered_s
    GROUP BY ALL
)


SELECT
    g.cluster,
    g.namespace,
    o.workload_kind,
    o.workload,
    max(o.team) AS team,
    sum(g.seconds) / 3600 AS gpu_hours,
    coalesce(sum(g.seconds) FILTER (WHERE h.pod IS NOT null), 0) / 3600 AS watched,
    coalesce(sum(g.rest_s) FILTER (
        WHERE g.act < $activity AND h.input_bps >= $input_bps * g.gpus
    ), 0) / 3600 AS waited,
    count(DISTINCT g.hour) FILTER (
        WHERE g.act < $activity AND h.input_bps >= $input_bps * g.gpus
    ) AS hours,
    avg(h.input_bps / g.gpus) FILTER (
        WHERE g.act < $activity AND h.input_bps >= $input_bps * g.gpus
    ) AS input_bps,
    avg(g.act) FILTER (
        WHERE g.act < $activity AND h.input_bps >= $input_bps * g.gpus
    ) AS act
FROM gpus AS g
INNER JOIN owners AS o ON g.cluster = o.cluster AND g.namespace = o.namespace AND g.pod = o.pod
LEFT JOIN hosts AS h
    ON
        g.cluster = h.cluster AND g.namespace = h.namespace AND g.pod = h.pod AND g.hour = h.hour
WHERE o.workload IS NOT null
GROUP BY g.cluster, g.namespace, o.workload_kind, o.workload
ORDER BY g.cluster, g.namespace, o.workload_kind, o.workload
