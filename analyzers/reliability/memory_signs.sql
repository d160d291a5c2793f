-- What devices report of their memory in the last day of raw samples: counters since the driver
-- was loaded, and a failure that stays until the GPU is replaced. One statement per counter, so
-- that files without any are not read.
SELECT
    cluster,
    device,
    any_value(node) AS node,
    'row_remap_failure' AS sign,
    max(row_remap_failure)::BIGINT AS most,
    max(row_remap_failure)::BIGINT AS growth
FROM sample
WHERE ts >= $recent AND ts < $until AND row_remap_failure > 0
GROUP BY cluster, device
UNION ALL BY NAME
SELECT
    cluster,
    device,
    any_value(node) AS node,
    'remapped_uncorrectable' AS sign,
    max(remapped_uncorrectable)::BIGINT AS most,
    max(remapped_uncorrectable)::BIGINT - min(remapped_uncorrectable) AS growth
FROM sample
WHERE ts >= $recent AND ts < $until AND remapped_uncorrectable > 0
GROUP BY cluster, device
UNION ALL BY NAME
SELECT
    cluster,
    device,
    any_value(node) AS node,
    'ecc_dbe' AS sign,
    max(ecc_dbe) AS most,
    max(ecc_dbe) - min(ecc_dbe) AS growth
FROM sample
WHERE ts >= $recent AND ts < $until AND ecc_dbe > 0
GROUP BY cluster, device
ORDER BY cluster, device, sign
