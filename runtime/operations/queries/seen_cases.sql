-- Cases as turns of the actor last saw them, from the copy of the journal: since a given time.
SELECT
    about AS id,
    arg_max(document, seq) AS document,
    min(ts) AS first_seen
FROM action
WHERE kind = 'seen' AND (document -> '$.kin') IS NOT NULL
GROUP BY cluster, about
HAVING max(ts) >= $since::TIMESTAMP
