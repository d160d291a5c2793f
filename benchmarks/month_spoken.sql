-- What notebooks and hosts said on one day, every ten minutes: kernels run when the GPU does, hosts
-- are busy while work goes on, services are asked for answers.
INSERT INTO notebook_sample BY NAME
SELECT
    'bench' AS cluster,
    ts,
    'team-' || (node * 24 + slot) % 40 AS namespace,
    'notebook-' || node || '-' || slot || '-' || turn || '-0' AS pod,
    1 AS kernels,
    busy::INTEGER AS busy_kernels,
    CASE WHEN busy THEN ts ELSE from_at END AS last_kernel_activity,
    0 AS terminals
FROM (
    SELECT
        *,
        unnest(
            generate_series(
                greatest(from_at, $day), least(to_at, $day + INTERVAL 1 DAY), INTERVAL 10 MINUTE
            )
        ) AS ts,
        (hash(node, slot, turn, epoch(ts)::BIGINT // 21600) % 1000) > 600
        AND (hash(slot, epoch(ts)::BIGINT // 300) % 10) > 4 AS busy
    FROM turns
    WHERE kind = 'notebook' AND from_at < $day + INTERVAL 1 DAY AND to_at > $day
) AS samples
WHERE ts < $day + INTERVAL 1 DAY;

INSERT INTO pod_sample BY NAME
SELECT
    'bench' AS cluster,
    ts,
    'team-' || (node * 24 + slot) % 40 AS namespace,
    kind || '-' || node || '-' || slot || '-' || turn || '-0' AS pod,
    600 AS interval_s,
    CASE WHEN busy THEN 4.0 ELSE 0.01 END AS cpu_cores,
    100.0 AS net_rx_bps,
    100.0 AS net_tx_bps,
    0.0 AS fs_write_bps,
    CASE WHEN kind = 'serve' THEN busy::INTEGER * 5.0 END AS requests_per_s
FROM (
    SELECT
        *,
        unnest(
            generate_series(
                greatest(from_at, $day), least(to_at, $day + INTERVAL 1 DAY), INTERVAL 10 MINUTE
            )
        ) AS ts,
        (hash(node, slot, turn, epoch(ts)::BIGINT // 21600) % 1000) / 1000.0 AS mood,
        CASE kind
            WHEN 'train' THEN mood > 0.3 OR hash(node, slot, turn, 'lazy') % 20 > 0
            WHEN 'serve' THEN (hash(node, slot, epoch(ts)::BIGINT // 300) % 10) > 2
            ELSE false
        END AS busy
    FROM turns
    WHERE
        kind IN ('train', 'serve', 'parked') AND from_at < $day + INTERVAL 1 DAY AND to_at > $day
) AS samples
WHERE ts < $day + INTERVAL 1 DAY
