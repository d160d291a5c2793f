-- The last reading of each signal of a workload's devices and pods between two timestamps, and when
-- its source was last read. A host's row is valid for its interval; a kernel or terminal also has
-- the time of its last activity, and no value where it is unknown whether one is active. A signal
-- without any reading is not in the result.
WITH allocations AS (
    SELECT DISTINCT
        a.device,
        a.pod
    FROM allocation AS a
    WHERE
        a.cluster = $cluster
        AND a.namespace = $namespace
        AND a.workload_kind = $kind
        AND a.workload = $workload
        AND a.start < $until::TIMESTAMP
        AND coalesce(a."end", $until::TIMESTAMP) >= $held_since::TIMESTAMP
),

pods AS (
    SELECT unnest($pods) AS pod
    UNION
    SELECT pod FROM allocations
),

gpus AS (
    SELECT device FROM allocations
    UNION
    SELECT unnest($devices) AS device
),

device_samples AS (
    SELECT
        s.device,
        s.ts,
        s.source,
        coalesce(s.interval_s, 60) AS interval_s,
        s.activity,
        s.energy_mj,
        s.last_kernel_age_s,
        greatest(s.pcie_tx_bps + s.pcie_rx_bps, s.nvlink_tx_bps + s.nvlink_rx_bps) AS traffic_bps,
        CASE WHEN s.parent IS null THEN s.power_w END AS power_w
    FROM active_sample AS s
    INNER JOIN gpus AS g ON s.device = g.device
    WHERE
        s.cluster = $cluster
        AND s.ts >= $since::TIMESTAMP AND s.ts <= $until::TIMESTAMP
),

-- What shows that telemetry is live, as frozen.count_changes has it.
lives AS (
    SELECT
        device,
        (count(DISTINCT power_w) > 1)::BIGINT
        + (count(DISTINCT energy_mj) > 1)::BIGINT
        + (count(DISTINCT traffic_bps) > 1)::BIGINT
        + (count(DISTINCT last_kernel_age_s) > 1)::BIGINT AS changes
    FROM device_samples
    WHERE ts >= $live_since::TIMESTAMP
    GROUP BY device
),

hosts AS (
    SELECT
        h.pod,
        h.requests_per_s,
        h.requests_held,
        h.io_pressure_ratio,
        h.fs_bps,
        h.net_bps,
        coalesce(h.interval_s, 60) AS interval_s,
        h.cpu_cores - coalesce(h.sidecar_cores, 0) AS cpu_cores,
        least(
            h.ts + to_milliseconds((1000 * coalesce(h.interval_s, 60))::BIGINT),
            $until::TIMESTAMP
        ) AS ts
    FROM serving_load AS h
    INNER JOIN pods AS p ON h.pod = p.pod
    WHERE
        h.cluster = $cluster AND h.namespace = $namespace
        AND h.ts >= $since::TIMESTAMP AND h.ts <= $until::TIMESTAMP
),

notebooks AS (
    SELECT n.*
    FROM notebook_activity AS n
    INNER JOIN pods AS p ON n.pod = p.pod
    WHERE
        n.cluster = $cluster AND n.namespace = $namespace
        AND n.ts >= $since::TIMESTAMP AND n.ts <= $until::TIMESTAMP
    QUALIFY row_number() OVER (PARTITION BY n.pod ORDER BY n.ts DESC) = 1
),

readings AS (
    SELECT
        'activity' AS signal,
        device AS about,
        ts,
        interval_s::DOUBLE AS interval_s,
        activity::DOUBLE AS value,
        null::TIMESTAMP AS active_at,
        source
    FROM device_samples
    UNION ALL
    SELECT
        'power',
        device,
        ts,
        interval_s::DOUBLE,
        power_w,
        null,
        source
    FROM device_samples
    UNION ALL
    SELECT
        'CPU',
        pod,
        ts,
        interval_s::DOUBLE,
        cpu_cores,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'network',
        pod,
        ts,
        interval_s::DOUBLE,
        net_bps,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'files',
        pod,
        ts,
        interval_s::DOUBLE,
        fs_bps,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'requests',
        pod,
        ts,
        interval_s::DOUBLE,
        requests_per_s,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'requests held',
        pod,
        ts,
        interval_s::DOUBLE,
        requests_held,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'I/O pressure',
        pod,
        ts,
        interval_s::DOUBLE,
        io_pressure_ratio,
        null,
        null
    FROM hosts
    UNION ALL
    SELECT
        'kernels',
        pod,
        ts,
        $notebook_s::DOUBLE,
        CASE WHEN NOT is_unknown THEN busy_kernels END,
        last_kernel_activity,
        null
    FROM notebooks
    UNION ALL
    SELECT
        'terminals',
        pod,
        ts,
        $notebook_s::DOUBLE,
        terminals * 0,
        last_terminal_activity,
        null
    FROM notebooks
),

requested AS (
    SELECT
        p.pod,
        max(p.cpu_request_milli) / 1000.0 AS cores
    FROM pod AS p
    WHERE
        p.cluster = $cluster AND p.namespace = $namespace
        AND p.pod IN (SELECT q.pod FROM pods AS q)
    GROUP BY p.pod
)

SELECT
    r.signal,
    r.about,
    r.ts,
    r.interval_s,
    r.value,
    r.active_at,
    r.source,
    q.cores,
    CASE WHEN r.signal = 'power' THEN coalesce(v.changes, 0) END AS changes
FROM readings AS r
LEFT JOIN requested AS q ON r.about = q.pod
LEFT JOIN lives AS v ON r.about = v.device
WHERE r.value IS NOT null OR r.signal = 'kernels'
QUALIFY row_number() OVER (PARTITION BY r.signal, r.about ORDER BY r.ts DESC) = 1
ORDER BY r.signal, r.about
