-- Findings with advice, by dollars over disruption. Disruption is 1, plus 1 for each time that the
-- owner reversed an earlier action on the workload.
WITH restored_actions AS (
    SELECT
        cluster,
        concat_ws('/', nullif(namespace, ''), workload_kind, workload) AS workload,
        count(*) AS times
    FROM acted
    WHERE restored_at IS NOT null
    GROUP BY ALL
)

SELECT
    f.id,
    f.cluster,
    f.analyzer,
    f.kind,
    f.evidence,
    f.team,
    f.workload,
    f.since,
    f.verb,
    f.effort,
    f.saving,
    f.gpu_hours,
    f.usd,
    f.at_most_gpu_hours,
    f.at_most_usd,
    f.is_handled,
    1 + coalesce(b.times, 0) AS disruption,
    (f.usd / (1 + coalesce(b.times, 0)))::DECIMAL(18, 6) AS usd_rank,
    r.until AS snoozed_until,
    p.policy,
    p.step,
    p.ruling,
    -- what happens next, in words: an allowed case may only be watched
    CASE
        WHEN p.ruling = 'hold' AND p.gate = 'approval' THEN 'wait for approval'
        WHEN p.ruling = 'hold' THEN 'hold'
        WHEN p.ruling = 'allow' AND p.step IN ('notify', 'grace') THEN 'notify'
        WHEN p.ruling = 'allow' AND p.step IN ('act', 'snapshot') THEN 'act'
        WHEN p.ruling = 'allow' THEN 'observe'
        WHEN p.ruling IS NOT null THEN 'refuse'
    END AS planned_step,
    p.why,
    p.next_at,
    p.request
FROM first_advice AS f
LEFT JOIN restored_actions AS b ON f.cluster = b.cluster AND f.workload = b.workload
LEFT JOIN snoozes AS r ON f.cluster = r.cluster AND f.id = r.finding
LEFT JOIN planned AS p ON f.cluster = p.cluster AND f.id = p.finding
ORDER BY
    usd_rank DESC NULLS LAST,
    f.at_most_usd DESC NULLS LAST,
    f.gpu_hours DESC,
    f.id ASC
