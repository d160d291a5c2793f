-- Whether everything is frozen, cluster by cluster: the first freeze since the last thaw.
WITH thaws AS (
    SELECT
        cluster,
        max(seq) AS seq
    FROM journal
    WHERE kind = 'thawed'
    GROUP BY cluster
)

SELECT
    j.cluster,
    min(j.ts) AS at,
    arg_min(j.actor, j.seq) AS actor,
    arg_min(j.document ->> '$.why', j.seq) AS why
FROM journal AS j
LEFT JOIN thaws AS t ON j.cluster = t.cluster
WHERE j.kind = 'frozen' AND j.seq > coalesce(t.seq, -1)
GROUP BY j.cluster
ORDER BY j.cluster ASC
