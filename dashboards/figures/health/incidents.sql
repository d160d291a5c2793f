-- The stored incidents, the newest first.
SELECT
    id,
    start,
    "end",
    cluster,
    cause,
    class,
    step,
    why,
    workloads,
    nodes,
    devices,
    gpus,
    lost_gpu_hours,
    most_lost_gpu_hours,
    recovery_gpu_hours,
    usd,
    evidence
FROM stored_incidents
ORDER BY start DESC, id ASC
LIMIT $most
