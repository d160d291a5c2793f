-- The rows of `rollup_5m` that the state rules read, in no order (`readings.py` sorts them: nearly
-- sorted rows are sorted faster there). `owner` numbers the rows of `owners.sql`, which are
-- `owner_row`: four texts of each row would take a third of the time.
-- `kind`: 0 without an activity; 1 idle, except for too few readings to end a run; 3 active; 4 the
-- signals contradict each other. `hot_s`: seconds of zeros with power above half the TDP.
WITH rolled AS (
    SELECT
        r.*,
        o.owner,
        o.whole_gpu,
        o.shares,
        o.tdp_w,
        r.act_n > 0 AND r.act_max > $threshold + 1e-6 AS active,
        r.act_mean * r.act_n - r.act_max AS beside,
        CASE
            WHEN
                r.power_w_max > o.tdp_w / 2 AND coalesce(r.mem_used_bytes_max, 1) > 0
                AND (r.gr_engine_active_n = 0 OR r.gr_engine_active_max > 0.01)
                THEN coalesce(r.conflict_s, 0)
            ELSE 0
        END AS hot_s
    FROM rollup_5m AS r
    INNER JOIN owner_row AS o
        ON
            r.cluster = o.cluster AND r.device = o.device
            AND r.namespace = o.namespace AND r.pod = o.pod
            AND coalesce(r.sharers > 1, FALSE) = o.shares
    WHERE
        r.bucket >= $since AND r.bucket < $until
        AND r.device >= $first_device AND r.device < $last_device
)

SELECT
    h.bucket,
    h.owner,
    h.shares,
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
    CASE WHEN h.whole_gpu AND h.power_w_min = h.power_w_max THEN h.power_w_min END::DOUBLE
        AS still_w,
    CASE WHEN h.whole_gpu THEN h.energy_mj END::DOUBLE AS energy_mj,
    -- A CASE evaluates its later conditions for the rows that met the earlier ones only.
    CASE
        WHEN
            h.gpu_util_pct_mean / 100 >= $spin_engine OR h.gr_engine_active_mean >= $spin_engine
            THEN CASE
                WHEN
                    h.tensor_active_max < $spin_tensor AND h.dram_active_max < $spin_dram
                    THEN
                        coalesce(h.sm_active_max < $spin_sm, TRUE)
                        AND coalesce(h.fp32_active_max < $spin_tensor, TRUE)
                        AND coalesce(greatest(h.pcie_bps_max, h.nvlink_bps_max) < $spin_bps, TRUE)
                        AND coalesce(
                            NOT h.whole_gpu OR h.power_w_mean < $spin_tdp * h.tdp_w, TRUE
                        )
                -- Without any profiling field its power says whether its busy engine does much.
                WHEN
                    coalesce(
                        h.tensor_active_max, h.dram_active_max, h.sm_active_max, h.fp32_active_max
                    ) IS NULL
                    THEN coalesce(
                        h.whole_gpu AND NOT h.shares AND h.power_w_mean < $spin_tdp * h.tdp_w, FALSE
                    )
                ELSE FALSE
            END
        ELSE FALSE
    END AS spins,
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
