-- Stored incidents that had a sign in a time and whose step was known at its end, the newest sign
-- first.
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
WHERE
    "end" >= $since AND start < $until
    AND (known_at IS null OR known_at <= $until)
ORDER BY "end" DESC, start DESC, id ASC
