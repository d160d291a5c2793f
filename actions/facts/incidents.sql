-- Stored incidents that had a sign in a time, the newest sign first.
SELECT
    cluster,
    id,
    cause,
    step,
    why,
    evidence,
    workloads,
    "end" AS end_at
FROM incident
WHERE "end" >= $since AND start < $until
ORDER BY "end" DESC, start DESC, id ASC
