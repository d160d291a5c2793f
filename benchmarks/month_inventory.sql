-- What the inventory knows of the fleet: its devices, nodes and pods, and two hundred nodes that
-- were away for an hour. A sixth of the nodes are spot.
INSERT INTO device BY NAME
SELECT
    'bench' AS cluster,
    device,
    CASE WHEN mig THEN gpu END AS parent,
    'node-' || node AS node,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    'H100' AS gpu_model,
    weight,
    60 AS interval_s,
    TIMESTAMP '2026-10-01' AS first_seen,
    TIMESTAMP '2026-10-01' + to_days($days::INTEGER) AS last_seen
FROM parts;

INSERT INTO node BY NAME
SELECT DISTINCT
    'bench' AS cluster,
    'node-' || node AS node,
    'aws' AS provider,
    CASE WHEN node % 3 = 0 THEN 'us-west-2' ELSE 'us-east-1' END AS region,
    region || CASE WHEN node % 2 = 0 THEN 'a' ELSE 'b' END AS zone,
    'p5.48xlarge' AS instance_type,
    CASE WHEN node % 6 = 0 THEN 'spot' ELSE 'on-demand' END AS capacity_type,
    'pool-' || node % 5 AS pool,
    8 AS gpu_count,
    'H100' AS gpu_model,
    true AS ready,
    false AS unschedulable,
    TIMESTAMP '2026-10-01' AS first_seen,
    TIMESTAMP '2026-10-01' + to_days($days::INTEGER) AS last_seen
FROM parts;

INSERT INTO event BY NAME
SELECT
    'bench' AS cluster,
    'event-' || n || '-' || k AS uid,
    TIMESTAMP '2026-10-01' + to_seconds(n * 3571 % (86400 * $days) + 3600 * k) AS ts,
    'Node' AS kind,
    'node-' || (n * 13 % ($gpus // 8)) AS name,
    CASE k WHEN 0 THEN 'NodeNotReady' ELSE 'NodeReady' END AS reason
FROM range(least(200, $gpus // 80)) AS g (n), range(2) AS t (k); -- noqa: AL05

INSERT INTO pod BY NAME
SELECT
    'bench' AS cluster,
    md5('pod' || node || '-' || slot || '-' || turn) AS uid,
    'team-' || (node * 24 + slot) % 40 AS namespace,
    kind || '-' || node || '-' || slot || '-' || turn || '-0' AS pod,
    'node-' || node AS node,
    'Running' AS phase,
    CASE kind
        WHEN 'serve' THEN 'Deployment' WHEN 'notebook' THEN 'Notebook' ELSE 'Job'
    END AS workload_kind,
    kind || '-' || node || '-' || slot || '-' || turn AS workload,
    md5('top' || node || '-' || slot || '-' || turn) AS workload_uid,
    'nvidia.com/gpu' AS gpu_resource,
    size AS gpu_request,
    from_at AS created_at,
    from_at AS scheduled_at,
    from_at + INTERVAL 1 MINUTE AS started_at,
    CASE WHEN to_at < TIMESTAMP '2026-10-01' + to_days($days::INTEGER) THEN to_at END
        AS finished_at,
    from_at AS first_seen,
    least(to_at, TIMESTAMP '2026-10-01' + to_days($days::INTEGER)) AS last_seen
FROM turns
WHERE kind <> 'free' AND from_at < TIMESTAMP '2026-10-01' + to_days($days::INTEGER)
