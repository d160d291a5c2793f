-- The cases beyond the stage `identified`, the newest first.
SELECT
    id,
    stage,
    team,
    workload,
    kind,
    gpu_hours,
    usd,
    requested_at,
    approved_at,
    acted_at,
    result,
    verified_gpu_hours,
    verified_usd
FROM cases
WHERE stage <> 'identified'
ORDER BY coalesce(acted_at, approved_at, requested_at) DESC, id ASC
LIMIT $most
