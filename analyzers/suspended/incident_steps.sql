-- The stored incidents of a job about the time of its stop, the newest sign first.
SELECT
    id,
    cause,
    step,
    "end",
    evidence
FROM incident
WHERE
    cluster = $cluster
    AND start < $until::TIMESTAMP
    AND "end" >= $since::TIMESTAMP
    AND list_contains(from_json(workloads, '["VARCHAR"]'), $workload)
ORDER BY "end" DESC, start DESC, id ASC
