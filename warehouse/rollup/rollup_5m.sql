-- One cluster's part of `rollup_5m`: the buckets of owners, scaled. A device's bucket has at most
-- 300 seconds: where its samples are valid for more, the rows of all its owners are scaled down in
-- proportion. The sums of the histogram become its 21 counts again.
WITH requested AS NOT MATERIALIZED (
    SELECT *
    FROM owner_bucket
    WHERE start >= epoch_us($first) AND start < epoch_us($last)
),

validity AS (
    SELECT
        device,
        start,
        nullif(sum(blind_s + idle_s + low_s + busy_s + conflict_s), 0.0) AS seconds
    FROM requested
    GROUP BY ALL
),

scaled AS (
    SELECT
        b.*,
        CASE WHEN v.seconds > 300 THEN 300 / v.seconds ELSE 1.0 END AS share
    FROM requested AS b
    INNER JOIN validity AS v ON b.device = v.device AND b.start = v.start
)

SELECT
    $cluster::VARCHAR AS cluster,
    make_timestamp(start) AS bucket,
    * EXCLUDE (start, share, bins_0, bins_1, bins_2, bins_3, bins_4, bins_5) -- noqa: AM04
    REPLACE (
        coalesce(n, 0) AS n,
        coalesce(act_n, 0) AS act_n,
        coalesce(gpu_util_pct_n, 0) AS gpu_util_pct_n,
        coalesce(gr_engine_active_n, 0) AS gr_engine_active_n,
        coalesce(sm_active_n, 0) AS sm_active_n,
        coalesce(tensor_active_n, 0) AS tensor_active_n,
        coalesce(dram_active_n, 0) AS dram_active_n,
        coalesce(fp32_active_n, 0) AS fp32_active_n,
        coalesce(power_w_n, 0) AS power_w_n,
        coalesce(mem_used_bytes_n, 0) AS mem_used_bytes_n,
        blind_s * share AS blind_s,
        idle_s * share AS idle_s,
        low_s * share AS low_s,
        busy_s * share AS busy_s,
        conflict_s * share AS conflict_s
    ),
    300 / nullif(interval_s, 0.0) AS expected,
    (blind_s + idle_s + low_s + busy_s + conflict_s) * share AS covered_s,
    [
        ((coalesce(bins_0, 0)::BIGINT >> 0) & 4095)::INTEGER,
        ((coalesce(bins_0, 0)::BIGINT >> 12) & 4095)::INTEGER,
        ((coalesce(bins_0, 0)::BIGINT >> 24) & 4095)::INTEGER,
        ((coalesce(bins_0, 0)::BIGINT >> 36) & 4095)::INTEGER,
        ((coalesce(bins_1, 0)::BIGINT >> 0) & 4095)::INTEGER,
        ((coalesce(bins_1, 0)::BIGINT >> 12) & 4095)::INTEGER,
        ((coalesce(bins_1, 0)::BIGINT >> 24) & 4095)::INTEGER,
        ((coalesce(bins_1, 0)::BIGINT >> 36) & 4095)::INTEGER,
        ((coalesce(bins_2, 0)::BIGINT >> 0) & 4095)::INTEGER,
        ((coalesce(bins_2, 0)::BIGINT >> 12) & 4095)::INTEGER,
        ((coalesce(bins_2, 0)::BIGINT >> 24) & 4095)::INTEGER,
        ((coalesce(bins_2, 0)::BIGINT >> 36) & 4095)::INTEGER,
        ((coalesce(bins_3, 0)::BIGINT >> 0) & 4095)::INTEGER,
        ((coalesce(bins_3, 0)::BIGINT >> 12) & 4095)::INTEGER,
        ((coalesce(bins_3, 0)::BIGINT >> 24) & 4095)::INTEGER,
        ((coalesce(bins_3, 0)::BIGINT >> 36) & 4095)::INTEGER,
        ((coalesce(bins_4, 0)::BIGINT >> 0) & 4095)::INTEGER,
        ((coalesce(bins_4, 0)::BIGINT >> 12) & 4095)::INTEGER,
        ((coalesce(bins_4, 0)::BIGINT >> 24) & 4095)::INTEGER,
        ((coalesce(bins_4, 0)::BIGINT >> 36) & 4095)::INTEGER,
        ((coalesce(bins_5, 0)::BIGINT >> 0) & 4095)::INTEGER
    ] AS act_hist
FROM scaled
