-- A cluster's device samples by owner (device, namespace, pod) and 5 minutes: all of `rollup_5m`
-- but the scale (see `rollup_5m.sql`).
--
-- The samples must begin before the first requested bucket by the longest validity and the longest
-- gap of an energy increase; the reader drops the buckets outside the requested ones. Time is a
-- number (microseconds since 1970): arithmetic on numbers is cheaper than on timestamps, and these
-- expressions run for every sample.
WITH timed AS NOT MATERIALIZED (
    -- An owner without a name is '' so that it can be a key.
    SELECT
        * REPLACE (
            coalesce(namespace, '') AS namespace,
            coalesce(pod, '') AS pod,
            CASE
                WHEN interval_s > $longest_interval_s THEN $longest_interval_s
                WHEN interval_s < 0 THEN 0
                ELSE coalesce(interval_s, $unknown_interval_s)
            END::FLOAT AS interval_s
        ), -- noqa: AM04
        at_us - at_us % 300000000 AS start
    FROM device_sample
),

-- A sample is valid for `reach_us` from the start of its bucket on. One column to compare with one
-- number: so the engine leaves out the samples that `later` does not need before it computes their
-- activity.
valid AS NOT MATERIALIZED (
    SELECT
        *,
        at_us % 300000000 + (interval_s * ($validity * 1000000)::FLOAT)::BIGINT AS reach_us
    FROM timed
),

-- The activity of a sample (0-1), as `signals/active_sample.sql` defines it. It stands here again
-- because a step before `valid` would compute it for the samples that `later` leaves out, too.
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
    FROM valid AS s
    LEFT JOIN model AS m ON s.model = m.model
),

-- What the activity of a sample means. Conflict is what collected bug reports describe
-- (docs/telemetry-and-waste.md#telemetry-faults): profiling shows no activity while the driver
-- counts kernels; activity is idle while the GPU draws over half its TDP (whole GPUs only: an
-- instance reports the power of its GPU); or the driver shows 90 % while no memory is used and the
-- power lies in the idle band. A stored (single precision) 0.05 is 0.0500000007, and it is still at
-- a threshold of 0.05: hence the millionth.
classified AS NOT MATERIALIZED (
    SELECT
        *,
        CASE
            WHEN activity IS NULL THEN 'blind'
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
                THEN 'conflict'
            WHEN activity <= $idle_threshold + 1e-6 THEN 'idle'
            WHEN activity < $low_threshold - 1e-6 THEN 'low'
            ELSE 'busy'
        END AS class
    FROM active
),

-- The seconds of each sample in its own bucket, and the bin of its activity in the histogram: 0 for
-- no activity, else 1 to 20, each step of 0.05 with its upper end.
within AS (
    SELECT
        *,
        (least(reach_us, 300000000) - at_us % 300000000) / 1000000 AS seconds,
        CASE
            WHEN activity < 0 THEN 0
            WHEN activity > 1 THEN 20
            ELSE ceil(activity * 20 - 1e-6)::INTEGER
        END AS bin
    FROM classified
),

-- Labels that change within a bucket: the greatest. The 21 counts of the histogram travel in 6 sums
-- of 4 counts of 12 bits: 21 conditional counts would take three times as long. 4,095 samples per
-- bin are 13 samples a second.
sampled AS (
    SELECT
        device,
        namespace,
        pod,
        start,
        max(node) AS node,
        max(parent) AS parent,
        max(vendor) AS vendor,
        max(model) AS model,
        max(profile) AS profile,
        max(sharers) AS sharers,
        avg(interval_s) AS interval_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'blind'), 0.0) AS blind_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'idle'), 0.0) AS idle_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'low'), 0.0) AS low_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'busy'), 0.0) AS busy_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'conflict'), 0.0) AS conflict_s,
        count(*) AS n,
        count(activity) AS act_n,
        min(activity) AS act_min,
        avg(activity) AS act_mean,
        max(activity) AS act_max,
        sum(
            CASE bin
                WHEN 0 THEN 1
                WHEN 1 THEN 4096
                WHEN 2 THEN 16777216
                WHEN 3 THEN 68719476736
                ELSE 0
            END
        ) AS bins_0,
        sum(
            CASE bin
                WHEN 4 THEN 1
                WHEN 5 THEN 4096
                WHEN 6 THEN 16777216
                WHEN 7 THEN 68719476736
                ELSE 0
            END
        ) AS bins_1,
        sum(
            CASE bin
                WHEN 8 THEN 1
                WHEN 9 THEN 4096
                WHEN 10 THEN 16777216
                WHEN 11 THEN 68719476736
                ELSE 0
            END
        ) AS bins_2,
        sum(
            CASE bin
                WHEN 12 THEN 1
                WHEN 13 THEN 4096
                WHEN 14 THEN 16777216
                WHEN 15 THEN 68719476736
                ELSE 0
            END
        ) AS bins_3,
        sum(
            CASE bin
                WHEN 16 THEN 1
                WHEN 17 THEN 4096
                WHEN 18 THEN 16777216
                WHEN 19 THEN 68719476736
                ELSE 0
            END
        ) AS bins_4,
        sum(
            CASE bin
                WHEN 20 THEN 1
                ELSE 0
            END
        ) AS bins_5,
        count(gpu_util_pct) AS gpu_util_pct_n,
        min(gpu_util_pct) AS gpu_util_pct_min,
        avg(gpu_util_pct) AS gpu_util_pct_mean,
        max(gpu_util_pct) AS gpu_util_pct_max,
        count(gr_engine_active) AS gr_engine_active_n,
        min(gr_engine_active) AS gr_engine_active_min,
        avg(gr_engine_active) AS gr_engine_active_mean,
        max(gr_engine_active) AS gr_engine_active_max,
        count(sm_active) AS sm_active_n,
        min(sm_active) AS sm_active_min,
        avg(sm_active) AS sm_active_mean,
        max(sm_active) AS sm_active_max,
        count(tensor_active) AS tensor_active_n,
        min(tensor_active) AS tensor_active_min,
        avg(tensor_active) AS tensor_active_mean,
        max(tensor_active) AS tensor_active_max,
        count(dram_active) AS dram_active_n,
        min(dram_active) AS dram_active_min,
        avg(dram_active) AS dram_active_mean,
        max(dram_active) AS dram_active_max,
        count(fp32_active) AS fp32_active_n,
        min(fp32_active) AS fp32_active_min,
        avg(fp32_active) AS fp32_active_mean,
        max(fp32_active) AS fp32_active_max,
        count(power_w) AS power_w_n,
        min(power_w) AS power_w_min,
        avg(power_w) AS power_w_mean,
        max(power_w) AS power_w_max,
        count(mem_used_bytes) AS mem_used_bytes_n,
        min(mem_used_bytes) AS mem_used_bytes_min,
        avg(mem_used_bytes) AS mem_used_bytes_mean,
        max(mem_used_bytes) AS mem_used_bytes_max,
        max(temp_c) AS temp_c_max,
        avg(sm_clock_mhz) AS sm_clock_mhz_mean,
        max(coalesce(pcie_tx_bps + pcie_rx_bps, pcie_tx_bps, pcie_rx_bps)) AS pcie_bps_max,
        max(coalesce(nvlink_tx_bps + nvlink_rx_bps, nvlink_tx_bps, nvlink_rx_bps))
            AS nvlink_bps_max,
        bit_or(throttle_mask) AS throttle_mask,
        max(xid) AS xid_max,
        max(proc_count) AS proc_count_max,
        min(last_kernel_age_s) AS last_kernel_age_s_min
    FROM within
    GROUP BY ALL
),

-- A sample near the end of its bucket is valid in later ones too: its seconds count there.
later AS (
    SELECT
        s.* REPLACE (s.start + p.k * 300000000 AS start),
        least(s.reach_us - p.k * 300000000, 300000000) / 1000000 AS seconds
    FROM classified AS s
    CROSS JOIN piece AS p
    WHERE s.reach_us > 300000000 AND s.reach_us > p.k * 300000000
),

reached AS (
    SELECT
        device,
        namespace,
        pod,
        start,
        max(node) AS node,
        max(parent) AS parent,
        max(vendor) AS vendor,
        max(model) AS model,
        max(profile) AS profile,
        max(sharers) AS sharers,
        avg(interval_s) AS interval_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'blind'), 0.0) AS blind_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'idle'), 0.0) AS idle_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'low'), 0.0) AS low_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'busy'), 0.0) AS busy_s,
        coalesce(sum(seconds) FILTER (WHERE class = 'conflict'), 0.0) AS conflict_s
    FROM later
    GROUP BY ALL
),

-- Increases of the energy counter; a drop counts from zero (a driver reload). An increase counts in
-- the bucket of the later sample. Over a longer gap nothing is counted: how the energy was spread
-- over it is unknown.
counted AS (
    SELECT
        device,
        namespace,
        pod,
        start,
        energy_mj,
        at_us,
        (interval_s * ($max_gap * 1000000)::FLOAT)::BIGINT AS longest,
        lag(energy_mj) OVER by_time AS before,
        lag(at_us) OVER by_time AS before_at
    FROM timed
    WHERE energy_mj IS NOT NULL
    WINDOW by_time AS (PARTITION BY device ORDER BY at_us)
),

energy AS (
    SELECT
        device,
        namespace,
        pod,
        start,
        sum(CASE WHEN energy_mj >= before THEN energy_mj - before ELSE energy_mj END) AS energy_mj
    FROM counted
    WHERE before IS NOT NULL AND at_us - before_at <= longest
    GROUP BY ALL
)

SELECT
    s.* EXCLUDE (
        device, namespace, pod, start, node, parent, vendor, model, profile, sharers, interval_s,
        blind_s, idle_s, low_s, busy_s, conflict_s
    ), -- noqa: AM04
    e.energy_mj,
    coalesce(s.device, r.device) AS device,
    coalesce(s.namespace, r.namespace) AS namespace,
    coalesce(s.pod, r.pod) AS pod,
    coalesce(s.start, r.start) AS start,
    coalesce(s.node, r.node) AS node,
    coalesce(s.parent, r.parent) AS parent,
    coalesce(s.vendor, r.vendor) AS vendor,
    coalesce(s.model, r.model) AS model,
    coalesce(s.profile, r.profile) AS profile,
    coalesce(s.sharers, r.sharers) AS sharers,
    coalesce(s.interval_s, r.interval_s) AS interval_s,
    coalesce(s.blind_s, 0.0) + coalesce(r.blind_s, 0.0) AS blind_s,
    coalesce(s.idle_s, 0.0) + coalesce(r.idle_s, 0.0) AS idle_s,
    coalesce(s.low_s, 0.0) + coalesce(r.low_s, 0.0) AS low_s,
    coalesce(s.busy_s, 0.0) + coalesce(r.busy_s, 0.0) AS busy_s,
    coalesce(s.conflict_s, 0.0) + coalesce(r.conflict_s, 0.0) AS conflict_s
FROM sampled AS s
LEFT JOIN energy AS e
    ON s.device = e.device AND s.namespace = e.namespace AND s.pod = e.pod AND s.start = e.start
FULL JOIN reached AS r
    ON s.device = r.device AND s.namespace = r.namespace AND s.pod = r.pod AND s.start = r.start
