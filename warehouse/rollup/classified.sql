-- A cluster's device samples with their activity, what it means, and for how long each is valid.
--
-- Time is a number (microseconds since 1970): arithmetic on numbers is cheaper than on timestamps,
-- and these expressions run for every sample.
WITH timed AS NOT MATERIALIZED (
    SELECT
        * REPLACE (
            CASE
                WHEN interval_s > $longest_interval_s THEN $longest_interval_s
                WHEN interval_s < 0 THEN 0
                ELSE coalesce(interval_s, $unknown_interval_s)
            END::FLOAT AS interval_s
        ), -- noqa: AM04
        interval_s AS reported_interval_s,
        mem_used_bytes + mem_free_bytes + coalesce(mem_reserved_bytes, 0) AS memory_bytes
    FROM labelled_sample
),

-- The activity of a sample (0-1), as `signals/active_sample.sql` defines it; a test compares them.
active AS NOT MATERIALIZED (
    SELECT
        s.*,
        m.tdp_w,
        m.idle_context_w,
        list_max([
            s.gr_engine_active,
            s.sm_active,
            s.tensor_active,
            s.fp64_active,
            s.fp32_active,
            s.fp16_active,
            s.dram_active,
            list_max([s.gpu_util_pct, s.enc_util_pct, s.dec_util_pct, s.mem_copy_util_pct])
            / 100::FLOAT
        ]) AS activity
    FROM timed AS s
    LEFT JOIN model AS m ON s.model = m.model
)

-- `class`: 0 blind, 1 idle, 2 low, 3 busy, 4 conflict, as `CLASSES` of `owner_buckets.py`. Conflict
-- is what collected bug reports describe (docs/telemetry-and-waste.md#telemetry-faults): profiling
-- shows no activity while the driver counts kernels; activity is idle while the GPU draws over half
-- its TDP (whole GPUs only: an instance reports the power of its GPU); or the driver shows 90 %
-- while no memory is used and the power lies in the idle band. A stored (single precision) 0.05 is
-- 0.0500000007, and it is still at a threshold of 0.05: hence the millionth.
--
-- `bin` is the place of the activity in the histogram: 0 for no activity, else 1 to 20, each step
-- of 0.05 with its upper end. A sample is valid for `valid_us`, and an increase of energy counts
-- where it came within `gap_us`.
SELECT
    label,
    sharers,
    interval_s,
    reported_interval_s,
    memory_bytes,
    at_us,
    (interval_s * ($validity * 1000000)::FLOAT)::BIGINT AS valid_us,
    (interval_s * ($max_gap * 1000000)::FLOAT)::BIGINT AS gap_us,
    CASE
        WHEN activity IS NULL THEN 0
        WHEN
            (gr_engine_active <= 0.01 + 1e-6 AND gpu_util_pct >= 10)
            OR (
                parent IS NULL
                AND activity <= $idle_threshold + 1e-6
                AND power_w > tdp_w / 2
            )
            OR (
                parent IS NULL
                AND gpu_util_pct >= 90
                AND mem_used_bytes = 0
                AND power_w <= idle_context_w
            )
            THEN 4
        WHEN activity <= $idle_threshold + 1e-6 THEN 1
        WHEN activity < $low_threshold - 1e-6 THEN 2
        ELSE 3
    END::TINYINT AS class,
    CASE
        WHEN activity < 0 THEN 0
        WHEN activity > 1 THEN 20
        ELSE ceil(activity * 20 - 1e-6)
    END::TINYINT AS bin,
    activity,
    gpu_util_pct,
    gr_engine_active,
    sm_active,
    tensor_active,
    dram_active,
    fp32_active,
    power_w,
    mem_used_bytes,
    energy_mj,
    temp_c,
    sm_clock_mhz,
    coalesce(pcie_tx_bps + pcie_rx_bps, pcie_tx_bps, pcie_rx_bps) AS pcie_bps,
    coalesce(nvlink_tx_bps + nvlink_rx_bps, nvlink_tx_bps, nvlink_rx_bps) AS nvlink_bps,
    throttle_mask,
    xid,
    proc_count,
    last_kernel_age_s
FROM active
