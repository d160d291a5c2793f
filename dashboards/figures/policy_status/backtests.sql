-- The results of policies' backtests, the newest first.
SELECT
    j.about AS policy,
    j.cluster,
    j.ts AS at,
    j.actor,
    (j.document ->> '$.since')::TIMESTAMPTZ::TIMESTAMP AS since,
    (j.document ->> '$.until')::TIMESTAMPTZ::TIMESTAMP AS until,
    (j.document ->> '$.stops')::INTEGER AS stops,
    (j.document ->> '$.judged')::INTEGER AS judged,
    coalesce(j.document ->> '$.reversed', j.document ->> '$.regretted')::INTEGER AS reversed,
    100 * (j.document ->> '$.rate')::DOUBLE AS rate_pct,
    100 * (j.document ->> '$.interval[0]')::DOUBLE AS low_pct,
    100 * (j.document ->> '$.interval[1]')::DOUBLE AS high_pct,
    100 * (j.document ->> '$.upper_end')::DOUBLE AS upper_pct,
    100 * (j.document ->> '$.declared')::DOUBLE AS declared_pct,
    (j.document ->> '$.gpu_hours')::DOUBLE AS gpu_hours,
    (j.document ->> '$.met')::BOOLEAN AND (j.document ->> '$.upper_end') IS NOT null AS met,
    coalesce(p.fingerprint = (j.document ->> '$.fingerprint'), false) AS is_its_text
FROM journal AS j
LEFT JOIN policy AS p ON j.cluster = p.cluster AND j.about = p.policy
WHERE j.kind = 'backtested'
ORDER BY j.ts DESC, j.seq DESC
LIMIT $most
