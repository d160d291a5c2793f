-- The findings of one workload, the worst first.
SELECT
    id,
    cluster,
    analyzer,
    kind,
    evidence,
    team,
    workload,
    since,
    verb,
    effort,
    saving,
    gpu_hours,
    usd,
    disruption,
    usd_rank,
    snoozed_until,
    policy,
    step,
    ruling,
    why,
    next_at,
    request
FROM chosen
WHERE cluster = $of_cluster AND workload = $of_workload
ORDER BY usd_rank DESC NULLS LAST, gpu_hours DESC, id ASC
