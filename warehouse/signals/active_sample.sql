-- Device samples with their activity (0-1): the greatest of all ratios and percentages that a
-- sample has. The greatest of a list passes over nulls and takes half the time of `greatest`.
SELECT
    *, -- noqa: AM04
    list_max([
        gr_engine_active,
        sm_active,
        tensor_active,
        fp64_active,
        fp32_active,
        fp16_active,
        dram_active,
        list_max([gpu_util_pct, enc_util_pct, dec_util_pct, mem_copy_util_pct]) / 100::FLOAT
    ]) AS activity
FROM sample
