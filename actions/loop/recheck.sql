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
    UNION ALL BY NAME
    SELECT
        'power' AS signal,
        device AS about,
        ts,
        interval_s,
        power_w AS value,
        source
    FROM device_samples
    UNION ALL BY NAME
    SELECT
        'CPU' AS signal,
        pod AS about,
        ts,
        interval_s,
        cpu_cores AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'network' AS signal,
        pod AS about,
        ts,
        interval_s,
        net_bps AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'files' AS signal,
        pod AS about,
        ts,
        interval_s,
        fs_bps AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'requests' AS signal,
        pod AS about,
        ts,
        interval_s,
        requests_per_s AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'requests held' AS signal,
        pod AS about,
        ts,
        interval_s,
        requests_held AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'I/O pressure' AS signal,
        pod AS about,
        ts,
        interval_s,
        io_pressure_ratio AS value
    FROM hosts
    UNION ALL BY NAME
    SELECT
        'kernels' AS signal,
        pod AS about,
        ts,
        $notebook_s::DOUBLE AS interval_s,
        CASE WHEN NOT is_unknown THEN busy_kernels END AS value,
        last_kernel_activity AS active_at
    FROM notebooks
    UNION ALL BY NAME
    SELECT
        'terminals' AS signal,
        pod AS about,
        ts,
        $notebook_s::DOUBLE AS interval_s,
        terminals * 0 AS value,
        last_terminal_activity AS active_at
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
