-- The advice, a row per finding, the largest saving first.
SELECT
    id,
    analyzer,
    kind,
    cluster,
    team,
    workload,
    evidence,
    verb,
    effort,
    saving,
    gpu_hours,
    usd
FROM first_advice
WHERE gpu_hours > 0 OR usd > 0
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, id ASC
