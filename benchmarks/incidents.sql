-- What the inventory knows of a fleet of training jobs for some days: a job has the GPUs of some
-- nodes for a day. `failures` are those of `failures.py`.
CREATE OR REPLACE TEMP TABLE failures AS
SELECT
    unnest(
        from_json(
            $failures,
            '[{
                "kind": "VARCHAR", "place": "INTEGER", "turn": "INTEGER", "node": "INTEGER",
                "slot": "INTEGER", "failed_at": "TIMESTAMP", "xid": "INTEGER",
                "ecc_dbe": "INTEGER", "remapped_uncorrectable": "INTEGER",
                "row_remap_pending": "INTEGER", "row_remap_failure": "INTEGER",
                "nvlink_crc": "INTEGER", "throttle_mask": "INTEGER", "sm_clock_mhz": "INTEGER",
                "temp_c": "INTEGER", "lost": "VARCHAR", "reason": "VARCHAR",
                "object": "VARCHAR", "message": "VARCHAR", "phase": "VARCHAR",
                "others": "VARCHAR", "containers": "VARCHAR", "others_containers": "VARCHAR"
            }]'
        ),
        recursive := true
    );

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
    coalesce(
        min(f.failed_at) + INTERVAL 2 MINUTE,
        TIMESTAMP '2026-10-01' + to_days($days::INTEGER)
    ) AS last_seen
FROM (
    SELECT
        g.node,
        s.slot
    FROM range($gpus // 8) AS g (node), range(8) AS s (slot) -- noqa: AL05
) AS d
LEFT JOIN failures AS f ON d.node = f.node AND d.slot = f.slot AND f.lost = 'gpu'
GROUP BY d.node, d.slot;

INSERT INTO event BY NAME
SELECT
    'bench' AS cluster,
    'event-' || place || '-' || turn AS uid,
    failed_at + INTERVAL 30 SECOND AS ts,
    object AS kind,
    CASE WHEN object = 'Pod' THEN 'team-' || place % 40 END AS namespace,
    CASE
        WHEN object = 'Pod' THEN 'train-' || place || '-' || turn || '-' || node % $job_nodes
        ELSE 'node-' || node
    END AS name,
    reason,
    message,
    'Warning' AS type
FROM failures
WHERE reason <> '';

INSERT INTO pod BY NAME
WITH planned AS (
    SELECT
        g.node,
        g.node // $job_nodes AS place,
        t.turn,
        TIMESTAMP '2026-10-01' + to_days(t.turn::INTEGER) AS created_at
    FROM range($gpus // 8) AS g (node), range($days) AS t (turn) -- noqa: AL05
),

ended AS (
    SELECT
        p.*,
        f.failed_at,
        f.containers,
        f.others_containers,
        f.phase,
        coalesce(p.node = f.node OR f.others = 'same', false) AS fails,
        coalesce(p.node <> f.node AND f.others = 'watchdog', false) AS waits
    FROM planned AS p
    LEFT JOIN failures AS f ON p.place = f.place AND p.turn = f.turn
)

SELECT
    'bench' AS cluster,
    'pod-' || node || '-' || turn AS uid,
    'team-' || place % 40 AS namespace,
    'train-' || place || '-' || turn || '-' || node % $job_nodes AS pod,
    'node-' || node AS node,
    CASE WHEN fails THEN phase WHEN waits THEN 'Failed' ELSE 'Running' END AS phase,
    'PyTorchJob' AS workload_kind,
    'train-' || place || '-' || turn AS workload,
    'top-' || place || '-' || turn AS workload_uid,
    'nvidia.com/gpu' AS gpu_resource,
    8 AS gpu_request,
    created_at,
    created_at AS scheduled_at,
    CASE WHEN fails AND phase = 'Pending' THEN null ELSE created_at END AS started_at,
    created_at AS first_seen,
    CASE
        WHEN fails AND phase = 'Failed' THEN failed_at + INTERVAL 1 MINUTE
        WHEN waits THEN failed_at + INTERVAL 10 MINUTE
        WHEN fails AND phase = 'Pending' THEN null
        ELSE created_at + INTERVAL 24 HOUR
    END AS finished_at,
    coalesce(finished_at, created_at + INTERVAL 24 HOUR) AS last_seen,
    CASE
        WHEN fails THEN containers WHEN waits THEN others_containers ELSE '[{"name":"main"}]'
    END AS containers
FROM ended
