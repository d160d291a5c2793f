-- The findings that match a person's choices.
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
FROM listed
WHERE
    ($analyzer::VARCHAR IS null OR analyzer = $analyzer)
    AND ($kind::VARCHAR IS null OR kind = $kind)
    AND ($evidence::VARCHAR IS null OR evidence = $evidence)
    AND ($snoozed OR snoozed_until IS null OR snoozed_until <= $until::TIMESTAMP)
