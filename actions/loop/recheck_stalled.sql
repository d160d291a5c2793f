-- The last sample of each named device and whether it shows work; each series of the pods' progress
-- and whether it moved since $still_since; the last sample of each pod's host and whether it writes
-- as a checkpoint does. The limits are those of a spin (warehouse/signals/spin.csv): a device of a
-- hung job spins or is idle.
SELECT
    'device' AS signal,
    device AS about,
    ts,
    coalesce(interval_s, 60)::DOUBLE AS interval_s,
    source,
    coalesce(list_max([tensor_active, fp64_active, fp32_active, fp16_active]) > $tensor, false)
    OR coalesce(dram_active > $dram, false)
    OR coalesce(sm_active > $sm, false)
    OR coalesce(
        list_sum([pcie_tx_bps, pcie_rx_bps, nvlink_tx_bps, nvlink_rx_bps]) >= $bps, false
    ) AS is_active
FROM sample
WHERE
    cluster = $cluster AND ts > $since::TIMESTAMP AND ts <= $until::TIMESTAMP
    AND list_contains($devices::VARCHAR[], device)
QUALIFY row_number() OVER (PARTITION BY device ORDER BY ts DESC) = 1
UNION ALL BY NAME
SELECT
    'progress' AS signal,
    p.pod || ' ' || p.metric AS about,
    max(p.ts) AS ts,
    coalesce(arg_max(p.interval_s, p.ts), 60)::DOUBLE AS interval_s,
    null AS source,
    count(DISTINCT p.value) FILTER (WHERE p.ts >= $still_since::TIMESTAMP) > 1 AS is_active
FROM progress_sample AS p
WHERE
    p.cluster = $cluster AND p.namespace = $namespace
    AND p.ts > $since::TIMESTAMP AND p.ts <= $until::TIMESTAMP
    AND list_contains($pods::VARCHAR[], p.pod) AND p.value IS NOT null
GROUP BY p.pod, p.metric
UNION ALL BY NAME
SELECT
    'file writes' AS signal,
    h.pod AS about,
    max(h.ts) AS ts,
    coalesce(arg_max(h.interval_s, h.ts), 60)::DOUBLE AS interval_s,
    null AS source,
    coalesce(arg_max(h.fs_write_bps, h.ts) >= $burst_bps, false) AS is_active
FROM pod_sample AS h
WHERE
    h.cluster = $cluster AND h.namespace = $namespace
    AND h.ts > $since::TIMESTAMP AND h.ts <= $until::TIMESTAMP
    AND list_contains($pods::VARCHAR[], h.pod)
GROUP BY h.pod
ORDER BY ALL
