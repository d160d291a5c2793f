-- The cases of the last plan, with their owner, what they cost and every reason (JSON).
SELECT
    owner AS team,
    reasons,
    gpus,
    usd_per_day
FROM planned
