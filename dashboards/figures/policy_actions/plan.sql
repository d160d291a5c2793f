-- The current decisions: done first, then notified, held, refused; the most expensive first in
-- each.
SELECT
    subject,
    cluster,
    owner,
    verb,
    CASE
        WHEN ruling = 'allow' AND step IN ('act', 'snapshot') THEN 'does it'
        WHEN ruling = 'allow' AND step IN ('notify', 'grace') THEN 'notifies its owner'
        WHEN ruling = 'allow' THEN 'watches'
        WHEN ruling = 'hold' THEN 'holds'
        ELSE 'refuses'
    END AS says,
    policy,
    step,
    gate,
    why,
    next_at,
    gpus,
    gpu_hours_per_day,
    usd_per_day,
    finding,
    request,
    ts AS at,
    aborted,
    acts
FROM planned
ORDER BY
    CASE says
        WHEN 'does it' THEN 0
        WHEN 'notifies its owner' THEN 1
        WHEN 'holds' THEN 2
        WHEN 'refuses' THEN 3
        ELSE 4
    END ASC,
    usd_per_day DESC NULLS LAST,
    subject ASC
LIMIT $most
