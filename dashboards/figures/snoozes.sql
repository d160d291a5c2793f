-- Until when each finding is snoozed: what was said last holds.
SELECT
    cluster,
    about AS finding,
    arg_max((document ->> '$.until')::TIMESTAMPTZ::TIMESTAMP, seq) AS until
FROM journal
WHERE kind = 'snoozed'
GROUP BY ALL
