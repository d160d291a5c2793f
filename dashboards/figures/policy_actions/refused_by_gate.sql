-- Cases of the last plan that a gate refuses, holds or lets go no further than a notice, by gate,
-- the most expensive first.
SELECT
    gate,
    CASE ruling
        WHEN 'deny' THEN 'refused'
        WHEN 'hold' THEN 'held'
        ELSE 'notified only'
    END AS decision,
    count(*) AS cases,
    sum(gpus) AS gpus,
    sum(usd_per_day) AS usd_per_day,
    arg_max(why, usd_per_day) AS example,
    string_agg(DISTINCT policy, ', ' ORDER BY policy) AS policies,
    min(next_at) AS next_at
FROM planned
WHERE gate IS NOT null
GROUP BY ALL
ORDER BY usd_per_day DESC NULLS LAST, cases DESC, gate ASC
