-- Measures that the month of the benchmarks does not have, of some nodes: energy, traffic,
-- processes and a slow exporter.
UPDATE rollup_5m SET
    power_w_min = power_w_mean,
    power_w_max = power_w_mean + hash(device, bucket) % 2,
    energy_mj = CASE WHEN hash(node) % 3 <> 0 THEN power_w_mean * 300000 END,
    pcie_bps_max = CASE
        WHEN hash(node) % 2 = 0 THEN 200000 + (hash(device, bucket, 'b') % 20) * 300000
    END,
    proc_count_max = CASE WHEN hash(node, 'p') % 2 = 0 THEN hash(device) % 2 END,
    last_kernel_age_s_min = CASE WHEN hash(node, 'k') % 2 = 0 THEN hash(device, bucket) % 900 END,
    interval_s = CASE WHEN hash(node, 's') % 3 = 0 THEN 150 ELSE interval_s END;
UPDATE rollup_1h SET
    energy_mj = 1, pcie_bps_max = 1, proc_count_max = 1, last_kernel_age_s_min = 1
