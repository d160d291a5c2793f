-- Stretches in which a job's device does no work: one row per device and stretch of at least
-- `least_s` seconds. It spins (its engine is busy and nothing moves), is idle (`rest`), or it is
-- unknown which (`blind`). Five minutes of `above_band` are no rest, whatever the engine shows.
-- `level_w` is the median power of the device while it works. A gap without samples separates two
-- stretches. Ratios are 32-bit floats: with 1e-6, a ratio equal to its limit
-- counts as equal.
WITH pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        workload_kind,
        workload
    FROM ranks
),

above_band AS (
    SELECT
        unnest($above_clusters) AS cluster,
        unnest($above_devices) AS device,
        unnest($above_buckets)::TIMESTAMP AS bucket
),

attributed AS (
    SELECT
        s.cluster,
        s.namespace,
        s.pod,
        s.device,
        s.node,
        s.parent,
        s.ts,
        s.power_w,
        s.energy_mj,
        s.tensor_active,
        s.dram_active,
        s.sm_active,
        s.gr_engine_active,
        s.gpu_util_pct / 100 AS util,
        coalesce(s.interval_s, 60)::DOUBLE AS interval_s,
        coalesce(s.gr_engine_active, s.gpu_util_pct / 100) AS engine,
        list_max([s.tensor_active, s.fp64_active, s.fp32_active, s.fp16_active]) AS pipes,
        list_sum([s.pcie_tx_bps, s.pcie_rx_bps, s.nvlink_tx_bps, s.nvlink_rx_bps]) AS link_bps
    FROM sample AS s
    WHERE s.ts >= $since AND s.ts < $until AND s.pod IS NOT null
),

judged AS (
    SELECT
        h.*,
        p.workload_kind,
        p.workload,
        CASE
            WHEN
                h.pipes > $spin_tensor + 1e-6 OR h.dram_active > $spin_dram + 1e-6
                OR h.link_bps >= $spin_bps
                OR h.sm_active > $spin_sm + 1e-6
                THEN 'work'
            WHEN h.engine IS null THEN 'blind'
            -- A profiler that reports 0 while kernels run is broken, not a signal.
            WHEN h.gr_engine_active <= $rest_engine AND h.util >= 0.1 THEN 'blind'
            WHEN h.engine <= $rest_engine AND a.bucket IS NOT null THEN 'low'
            WHEN h.engine <= $rest_engine THEN 'rest'
            WHEN h.engine < $spin_engine - 1e-6 THEN 'work'
            WHEN
                h.tensor_active IS null OR h.dram_active IS null OR h.link_bps IS null
                THEN 'blind'
            ELSE 'spin'
        END AS state
    FROM attributed AS h
    INNER JOIN pods AS p
        ON h.cluster = p.cluster AND h.namespace = p.namespace AND h.pod = p.pod
    LEFT JOIN above_band AS a
        ON
            h.cluster = a.cluster AND h.device = a.device
            AND time_bucket(INTERVAL 5 MINUTE, h.ts) = a.bucket
),

parted AS (
    SELECT
        *,
        sum(
            CASE
                WHEN state IN ('work', 'low') THEN 1
                -- The end of a spin belongs to the stretch; the start of a spin begins a new one.
                WHEN state <> 'rest' AND before_state = 'rest' THEN 1
                WHEN epoch(ts) - epoch(before_at) > $most_gap * interval_s THEN 1
                ELSE 0
            END
        )
            OVER (
                PARTITION BY cluster, device
                ORDER BY ts
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
            AS stretch
    FROM (
        SELECT
            *,
            lag(ts) OVER device AS before_at,
            lag(energy_mj) OVER device AS before_mj,
            lag(state) OVER device AS before_state
        FROM judged
        WINDOW device AS (PARTITION BY cluster, device ORDER BY ts)
    ) AS ordered
),

levels AS (
    SELECT
        cluster,
        device,
        quantile_cont(power_w, 0.5) AS level_w
    FROM judged
    WHERE state = 'work' AND parent IS null
    GROUP BY cluster, device
)

SELECT
    q.cluster,
    q.namespace,
    q.workload_kind,
    q.workload,
    q.device,
    min_by(q.pod, q.ts) AS pod,
    min_by(q.node, q.ts) AS node,
    any_value(coalesce(d.gpu_model, d.model)) AS model,
    coalesce(any_value(d.weight), 1)::DOUBLE AS weight,
    max(q.interval_s) AS interval_s,
    min(q.ts) AS start,
    least(max(q.ts) + to_milliseconds((1000 * max(q.interval_s))::BIGINT), $until::TIMESTAMP)
        AS "end",
    count(*) FILTER (WHERE q.state = 'spin') AS spins,
    count(*) FILTER (WHERE q.state = 'blind') AS blinds,
    max(q.ts) FILTER (WHERE q.state = 'spin') AS last_spin,
    min(q.ts) FILTER (WHERE q.state = 'rest') AS first_rest,
    quantile_cont(q.power_w, 0.05) FILTER (WHERE q.state = 'spin' AND q.parent IS null) AS least_w,
    quantile_cont(q.power_w, 0.5) FILTER (WHERE q.state = 'spin' AND q.parent IS null) AS power_w,
    quantile_cont(q.power_w, 0.95) FILTER (WHERE q.state = 'spin' AND q.parent IS null) AS most_w,
    any_value(l.level_w) AS level_w,
    -- A powered GPU uses energy, and a power reading finer than whole watts changes.
    any_value(q.parent) IS null AND coalesce(
        (count(q.energy_mj) > 1 AND max(q.energy_mj) = min(q.energy_mj))
        OR max(q.ts) FILTER (WHERE q.energy_mj IS NOT null)
        - max(q.ts) FILTER (WHERE q.energy_mj <> q.before_mj) >= to_seconds($still_s)
        OR (
            count(q.power_w) >= $still_readings AND max(q.power_w) = min(q.power_w)
            AND abs(max(q.power_w) - round(max(q.power_w))) > 1e-3
        ),
        false
    ) AS frozen,
    bool_or(q.state = 'blind' AND q.tensor_active IS null) AS no_tensor,
    bool_or(q.state = 'blind' AND q.dram_active IS null) AS no_dram,
    bool_or(q.state = 'blind' AND q.link_bps IS null) AS no_link
FROM parted AS q
LEFT JOIN levels AS l ON q.cluster = l.cluster AND q.device = l.device
LEFT JOIN device AS d ON q.cluster = d.cluster AND q.device = d.device
WHERE q.state NOT IN ('work', 'low')
GROUP BY q.cluster, q.namespace, q.workload_kind, q.workload, q.device, q.stretch
HAVING epoch("end") - epoch(min(q.ts)) >= $least_s
ORDER BY ALL
