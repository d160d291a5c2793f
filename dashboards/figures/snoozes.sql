-- Until when each finding is snoozed: the last request is valid.
SELECT
    cluster,
    about AS finding,
    arg_max((document ->> '$.until')::TIMESTAMPTZ::TIMESTAMP, seq) AS until
FROM journal
WHERE kind = 'snoozed'
GROUP BY ALL
