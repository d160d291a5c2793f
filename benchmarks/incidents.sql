-- What the inventory knows of a fleet of training jobs for some days: a job has the GPUs of eight
-- nodes for a day. `failures` are of hardware: 37 in a week of 10,000 GPUs, as 466 in 54 days on
-- 16,384 GPUs (The Llama 3 Herd of Models, 2024, section 3.3.4). About one pod in 44 ends by
-- itself with an error.
CREATE OR REPLACE TEMP TABLE failures AS
SELECT
    n,
    n % 5 AS class,
    hash('node', n)::UBIGINT % ($gpus // 8) AS node,
    hash('slot', n)::UBIGINT % 8 AS slot,
    TIMESTAMP '2026-10-01'
    + to_seconds((hash('at', n)::UBIGINT % (86400 * $days))::BIGINT) AS failed_at
FROM range(greatest(5, round(37 * $gpus * $days / 70000.0)::BIGINT)) AS g (n); -- noqa: AL05

INSERT INTO node BY NAME
SELECT
    'bench' AS cluster,
    'node-' || node AS node,
    'pool-' || node % 5 AS pool,
    8 AS gpu_count,
    'H100' AS gpu_model,
    true AS ready,
    TIMESTAMP '2026-10-01' AS first_seen,
    TIMESTAMP '2026-10-01' + to_days($days::INTEGER) AS last_seen
FROM range($gpus // 8) AS g (node); -- noqa: AL05

INSERT INTO device BY NAME
SELECT
    'bench' AS cluster,
    'GPU-' || d.node || '-' || d.slot AS device,
    'node-' || d.node AS node,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    'H100' AS gpu_model,
    1 AS weight,
    60 AS interval_s,
    TIMESTAMP '2026-10-01' AS first_seen,
    coalesce(min(f.failed_at), TIMESTAMP '2026-10-01' + to_days($days::INTEGER)) AS last_seen
FROM (
    SELECT
        g.node,
        s.slot
    FROM range($gpus // 8) AS g (node), range(8) AS s (slot) -- noqa: AL05
) AS d
LEFT JOIN failures AS f ON d.node = f.node AND d.slot = f.slot AND f.class = 0
GROUP BY d.node, d.slot;

INSERT INTO event BY NAME
SELECT
    'bench' AS cluster,
    'event-' || n AS uid,
    failed_at AS ts,
    'Node' AS kind,
    'node-' || node AS name,
    'NodeNotReady' AS reason,
    'Node is not ready' AS message,
    'Warning' AS type
FROM failures
WHERE class = 3;

INSERT INTO pod BY NAME
SELECT
    'bench' AS cluster,
    'pod-' || node || '-' || turn AS uid,
    'team-' || (node // 8) % 40 AS namespace,
    'train-' || node // 8 || '-' || turn || '-' || node % 8 AS pod,
    'node-' || node AS node,
    CASE WHEN is_failed THEN 'Failed' ELSE 'Running' END AS phase,
    'PyTorchJob' AS workload_kind,
    'train-' || node // 8 || '-' || turn AS workload,
    'top-' || node // 8 || '-' || turn AS workload_uid,
    'nvidia.com/gpu' AS gpu_resource,
    8 AS gpu_request,
    TIMESTAMP '2026-10-01' + to_days(turn::INTEGER) AS created_at,
    created_at AS scheduled_at,
    created_at AS started_at,
    created_at AS first_seen,
    created_at + CASE WHEN is_failed THEN INTERVAL 20 HOUR ELSE INTERVAL 24 HOUR END AS finished_at,
    finished_at AS last_seen,
    CASE
        WHEN is_failed THEN '[{"name":"main","restarts":1,"last_exit":{"code":1}}]'
        ELSE '[{"name":"main"}]'
    END AS containers
FROM (
    SELECT
        g.node,
        t.turn,
        hash('fails', g.node, t.turn) % 44 = 0 AS is_failed
    FROM range($gpus // 8) AS g (node), range($days) AS t (turn) -- noqa: AL05
) AS p
