-- The rows of `rollup_5m` that the state rules read, sorted by stream and time. A stream is a
-- device, or a pod on a shared device. `hold` changes when another pod holds the device (odd: it
-- changes within these five minutes). `kind`: 0 without an activity; 1 idle, except for too few
-- readings to end a run; 3 active; 4 the signals contradict each other. `hot_s`: seconds of zeros
-- with power above half the TDP. The power of a GPU does not describe one of its MIG instances.
WITH edges AS (
    SELECT
        cluster,
        device,
        edge_at,
        row_number() OVER (PARTITION BY cluster, device ORDER BY edge_at) AS number,
        sum(step) OVER (PARTITION BY cluster, device ORDER BY edge_at) AS pods
    FROM (
        SELECT
            cluster,
            device,
            edge_at,
            sum(step) AS step
        FROM (
            SELECT
                cluster,
                device,
                unnest([start, "end"]) AS edge_at,
                unnest([1, -1]) AS step
            FROM allocation
            WHERE start < $until AND "end" > $since
        ) AS both_ends
        GROUP BY cluster, device, edge_at
    ) AS edge_sums
),

model AS (
    SELECT
        unnest($models) AS gpu_model,
        unnest($hours) AS hour,
        unnest($tdps_w) AS tdp_w,
        unnest($bands_w) AS band_w,
        unnest($bands) AS band
),

rolled AS (
    SELECT
        r.*,
        d.gpu_model,
        d.parent IS NULL AS whole_gpu,
        CASE WHEN d.parent IS NULL THEN m.tdp_w END AS tdp_w,
        CASE WHEN d.parent IS NULL THEN m.band_w END AS band_w,
        CASE WHEN d.parent IS NULL THEN m.band END AS band,
        CASE WHEN r.sharers > 1 THEN r.namespace || '/' || r.pod ELSE '' END AS sharer,
        r.act_n > 0 AND r.act_max > $threshold + 1e-6 AS active,
        r.act_mean * r.act_n - r.act_max AS beside
    FROM rollup_5m AS r
    LEFT JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
    LEFT JOIN model AS m
        ON d.gpu_model = m.gpu_model AND date_trunc('hour', r.bucket) = m.hour
    WHERE r.bucket >= $since AND r.bucket < $until
),

with_hot_zeros AS (
    SELECT
        *,
        CASE
            WHEN
                power_w_max > tdp_w / 2 AND coalesce(mem_used_bytes_max, 1) > 0
                AND (gr_engine_active_n = 0 OR gr_engine_active_max > 0.01)
                THEN coalesce(conflict_s, 0)
            ELSE 0
        END AS hot_s
    FROM rolled
),

-- A join by device and time: an ASOF join sorts every row of both sides with all its columns.
ends AS (
    SELECT
        *,
        lead(edge_at, 1, $until) OVER (PARTITION BY cluster, device ORDER BY edge_at) AS next_at
    FROM edges
),

with_allocation AS (
    SELECT
        t.*,
        coalesce(e.pods, 0) > 0 AS allocated,
        2 * coalesce(e.number, 0) AS hold
    FROM with_hot_zeros AS t
    LEFT JOIN ends AS e
        ON
            t.cluster = e.cluster AND t.device = e.device
            AND t.bucket >= e.edge_at AND t.bucket < e.next_at
),

changes AS (
    SELECT DISTINCT
        cluster,
        device,
        time_bucket(INTERVAL 5 MINUTE, edge_at) AS bucket
    FROM edges
    WHERE edge_at > time_bucket(INTERVAL 5 MINUTE, edge_at)
),

-- Few streams are numbered instead of all rows.
streams AS (
    SELECT
        cluster,
        device,
        sharer,
        row_number() OVER (ORDER BY cluster, device, sharer) AS stream
    FROM (
        SELECT DISTINCT
            cluster,
            device,
            CASE WHEN sharers > 1 THEN namespace || '/' || pod ELSE '' END AS sharer
        FROM rollup_5m
        WHERE bucket >= $since AND bucket < $until
    ) AS names
)

SELECT
    h.cluster,
    h.bucket,
    h.device,
    h.namespace,
    h.pod,
    n.stream,
    epoch_us(h.bucket) AS at_us,
    h.allocated OR c.bucket IS NOT NULL AS allocated,
    h.hold + (c.bucket IS NOT NULL)::INTEGER AS hold,
    coalesce(h.interval_s, 60)::DOUBLE AS interval_s,
    coalesce(h.act_n, 0) AS sample_count,
    CASE
        WHEN coalesce(h.conflict_s, 0) > 0 AND NOT (h.active AND h.hot_s > 0) THEN 4
        WHEN coalesce(h.idle_s, 0) + coalesce(h.low_s, 0) + coalesce(h.busy_s, 0) <= 0 THEN 0
        WHEN h.act_n > 0 AND NOT h.active THEN 1
        WHEN
            h.active AND h.act_n > 1 AND h.hot_s <= 0
            AND h.beside < CASE
                WHEN h.act_max < $exit_threshold - 1e-6 THEN 1e9
                ELSE $exit_threshold * ($exit_samples - 1)
            END
            AND 1 + floor(h.beside / greatest($threshold, 1e-6)) < h.act_n
            THEN 1
        WHEN coalesce(h.act_n, 0) = 0 AND coalesce(h.low_s, 0) + coalesce(h.busy_s, 0) <= 0 THEN 1
        ELSE 3
    END::TINYINT AS kind,
    coalesce(h.active, coalesce(h.low_s, 0) + coalesce(h.busy_s, 0) > 0) AS active,
    coalesce(h.idle_s, 0)::DOUBLE AS idle_s,
    coalesce(h.low_s, 0)::DOUBLE AS low_s,
    coalesce(h.busy_s, 0)::DOUBLE AS busy_s,
    (coalesce(h.conflict_s, 0) + coalesce(h.blind_s, 0))::DOUBLE AS unknown_s,
    h.hot_s::DOUBLE AS hot_s,
    h.act_mean::DOUBLE AS activity,
    CASE WHEN h.whole_gpu THEN h.power_w_mean END::DOUBLE AS power_w,
    CASE WHEN h.whole_gpu THEN h.energy_mj END::DOUBLE AS energy_mj,
    h.band_w::DOUBLE AS band_w,
    h.band,
    coalesce(
        greatest(h.gpu_util_pct_mean / 100, h.gr_engine_active_mean) >= $spin_engine
        AND h.tensor_active_max < $spin_tensor AND h.dram_active_max < $spin_dram
        AND coalesce(h.sm_active_max < $spin_sm, TRUE)
        AND coalesce(h.fp32_active_max < $spin_tensor, TRUE)
        AND coalesce(greatest(h.pcie_bps_max, h.nvlink_bps_max) < $spin_bps, TRUE)
        AND coalesce(NOT h.whole_gpu OR h.power_w_mean < $spin_tdp * h.tdp_w, TRUE),
        FALSE
    ) AS spins,
    CASE
        WHEN h.tensor_active_mean IS NULL THEN h.sm_active_mean
        ELSE least(
            1,
            greatest(
                h.tensor_active_mean / $peak_tensor,
                h.fp32_active_mean / $peak_fp32,
                h.dram_active_mean / $peak_dram
            )
        )
    END::DOUBLE AS effective
FROM with_allocation AS h
INNER JOIN streams AS n
    ON h.cluster = n.cluster AND h.device = n.device AND h.sharer IS NOT DISTINCT FROM n.sharer
LEFT JOIN changes AS c ON h.cluster = c.cluster AND h.device = c.device AND h.bucket = c.bucket
ORDER BY stream, at_us, namespace NULLS FIRST, pod NULLS FIRST
