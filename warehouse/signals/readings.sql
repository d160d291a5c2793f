-- The rows of `rollup_5m` that the state rules read, in no order (`readings.py` sorts them: nearly
-- sorted rows are sorted faster there). A stream is a device, or a pod on a shared device.
-- `kind`: 0 without an activity; 1 idle, except for too few readings to end a run; 3 active; 4 the
-- signals contradict each other. `hot_s`: seconds of zeros with power above half the TDP. The power
-- of a GPU does not describe one of its MIG instances: `model`, a number in $models, is null for
-- these. One join with the few streams brings all that is known of a device.
WITH names AS (
    SELECT DISTINCT
        cluster,
        device,
        CASE WHEN sharers > 1 THEN namespace || '/' || pod ELSE '' END AS sharer
    FROM rollup_5m
    WHERE
        bucket >= $since AND bucket < $until
        AND device >= $first_device AND device < $last_device
),

model AS (
    SELECT
        unnest($models) AS gpu_model,
        unnest($tdps_w) AS tdp_w,
        unnest(range(len($models))) AS number
),

streams AS (
    SELECT
        n.cluster,
        n.device,
        n.sharer,
        d.parent IS NULL AS whole_gpu,
        CASE WHEN d.parent IS NULL THEN m.tdp_w END AS tdp_w,
        CASE WHEN d.parent IS NULL THEN m.number END AS model,
        row_number() OVER (ORDER BY n.cluster, n.device, n.sharer) AS stream
    FROM names AS n
    LEFT JOIN device AS d ON n.cluster = d.cluster AND n.device = d.device
    LEFT JOIN model AS m ON d.gpu_model = m.gpu_model
),

rolled AS (
    SELECT
        r.*,
        s.stream,
        s.model AS model_number,
        s.whole_gpu,
        s.tdp_w,
        r.act_n > 0 AND r.act_max > $threshold + 1e-6 AS active,
        r.act_mean * r.act_n - r.act_max AS beside,
        CASE
            WHEN
                r.power_w_max > s.tdp_w / 2 AND coalesce(r.mem_used_bytes_max, 1) > 0
                AND (r.gr_engine_active_n = 0 OR r.gr_engine_active_max > 0.01)
                THEN coalesce(r.conflict_s, 0)
            ELSE 0
        END AS hot_s
    FROM rollup_5m AS r
    INNER JOIN streams AS s
        ON
            r.cluster = s.cluster AND r.device = s.device
            AND CASE WHEN r.sharers > 1 THEN r.namespace || '/' || r.pod ELSE '' END
            IS NOT DISTINCT FROM s.sharer
    WHERE
        r.bucket >= $since AND r.bucket < $until
        AND r.device >= $first_device AND r.device < $last_device
)

SELECT
    h.cluster,
    h.bucket,
    h.device,
    h.namespace,
    h.pod,
    h.stream,
    epoch_us(h.bucket) AS at_us,
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
    h.model_number AS model,
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
FROM rolled AS h
