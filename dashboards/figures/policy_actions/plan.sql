-- The current decisions: done first, then notified, held, refused; the most expensive first in
-- each. What the service has begun since the plan was written is there with its result.
SELECT
    p.subject,
    p.cluster,
    p.owner,
    p.verb,
    CASE
        WHEN p.ruling = 'allow' AND p.step IN ('act', 'snapshot')
            THEN coalesce(b.result, 'does it')
        WHEN p.ruling = 'allow' AND p.step IN ('notify', 'grace') THEN 'notifies its owner'
        WHEN p.ruling = 'allow' THEN 'watches'
        WHEN p.ruling = 'hold' THEN 'holds'
        ELSE 'refuses'
    END AS says,
    p.policy,
    p.step,
    p.gate,
    p.reason,
    p.why,
    p.next_at,
    p.gpus,
    p.gpu_hours_per_day,
    p.usd_per_day,
    p.finding,
    p.request,
    p.ts AS at,
    p.aborted,
    p.acts
FROM planned AS p
LEFT JOIN begun AS b ON p.cluster = b.cluster AND p.finding = b.finding AND p.ts <= b.ts
ORDER BY
    CASE says
        WHEN 'does it' THEN 0
        WHEN 'notifies its owner' THEN 1
        WHEN 'holds' THEN 2
        WHEN 'refuses' THEN 3
        ELSE 4
    END ASC,
    p.usd_per_day DESC NULLS LAST,
    p.subject ASC
LIMIT $most
