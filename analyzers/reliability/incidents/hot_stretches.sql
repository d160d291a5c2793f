-- Devices that throttled for heat or by the power brake while they worked: since when, how
-- long, and their mean clock; and the median clock of the other devices of the model in the same
-- pods' workload at these times.
WITH owned AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        workload_kind,
        workload
    FROM pod
    WHERE workload IS NOT null AND gpu_request > 0
),

hot AS (
    SELECT
        s.cluster,
        o.namespace,
        o.workload_kind,
        o.workload,
        s.device,
        any_value(s.model) AS model,
        any_value(s.pod) AS pod,
        any_value(s.node) AS node,
        min(s.ts) AS start,
        max(s.ts) AS "end",
        count(*) * max(coalesce(s.interval_s, 60)) AS seconds,
        avg(s.sm_clock_mhz) AS clock_mhz,
        bool_or(s.throttle_mask & $heat <> 0 OR s.throttle_mask & $power = 0) AS hot,
        bool_or(s.throttle_mask & $power <> 0) AS braked
    FROM sample AS s
    INNER JOIN owned AS o ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
    WHERE
        s.ts >= $since
        AND s.ts < $until
        AND s.throttle_mask & $throttles <> 0
        AND s.parent IS null
        AND coalesce(s.sm_active, s.gr_engine_active, s.gpu_util_pct / 100) > 0.05
    GROUP BY s.cluster, o.namespace, o.workload_kind, o.workload, s.device
),

peers AS (
    SELECT
        h.cluster,
        h.device,
        h.workload,
        h.namespace,
        s.device AS peer,
        avg(s.sm_clock_mhz) AS clock_mhz
    FROM hot AS h
    INNER JOIN owned AS o
        ON
            h.cluster = o.cluster AND h.namespace = o.namespace
            AND h.workload_kind = o.workload_kind AND h.workload = o.workload
    INNER JOIN sample AS s
        ON o.cluster = s.cluster AND o.namespace = s.namespace AND o.pod = s.pod
    WHERE
        s.ts >= h.start
        AND s.ts <= h."end"
        AND s.ts >= $since
        AND s.ts < $until
        AND s.model IS NOT DISTINCT FROM h.model
        AND coalesce(s.sm_active, s.gr_engine_active, s.gpu_util_pct / 100) > 0.05
    GROUP BY ALL
)

SELECT
    h.cluster,
    h.namespace,
    h.workload_kind,
    h.workload,
    h.device,
    coalesce(h.pod, '') AS pod,
    coalesce(h.node, '') AS node,
    h.start,
    h."end",
    h.seconds::DOUBLE AS seconds,
    h.clock_mhz::DOUBLE AS clock_mhz,
    quantile_cont(p.clock_mhz, 0.5)::DOUBLE AS peers_mhz,
    count(p.peer) AS peers,
    any_value(h.hot) AS hot,
    any_value(h.braked) AS braked
FROM hot AS h
LEFT JOIN peers AS p
    ON
        h.cluster = p.cluster AND h.device = p.device
        AND h.namespace = p.namespace AND h.workload = p.workload
WHERE h.clock_mhz > 0 AND h.seconds >= $least_s
GROUP BY ALL
ORDER BY ALL
