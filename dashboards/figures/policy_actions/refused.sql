-- What the loop refused just before the action, although a plan allowed it: by a gate or the
-- cluster.
SELECT
    r.ts AS at,
    r.about AS decision,
    coalesce(r.document ->> '$.policy', '') AS policy,
    r.document ->> '$.line' AS why,
    concat_ws(
        '/',
        nullif(r.document ->> '$.subject[2]', ''),
        r.document ->> '$.subject[1]',
        r.document ->> '$.subject[3]'
    ) AS subject,
    r.actor
FROM journal AS r
WHERE r.kind = 'refused' AND r.ts >= $since AND r.ts < $until
ORDER BY r.ts DESC, r.seq DESC
LIMIT $most
