-- The device samples that a rollup reads, with the time as a number, as `classified.sql`
-- requires. The columns that it does not use are left out: few samples become a temporary table.
SELECT
    * EXCLUDE ( -- noqa: AM04
        ts,
        gpu_index,
        container,
        source,
        sm_occupancy,
        mem_temp_c,
        mem_clock_mhz,
        row_remap_failure,
        row_remap_pending,
        remapped_uncorrectable,
        pcie_replay,
        nvlink_crc,
        nvlink_replay,
        ecc_dbe
    ),
    epoch_us(ts) AS at_us
FROM sample
WHERE cluster = $cluster AND ts >= $since AND ts < $until
