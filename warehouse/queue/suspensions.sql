-- Jobs that Fallow suspended and whose suspension stands at a time: the newest act on the workload
-- is that stop, it took effect, and neither its owner, a controller nor an undo took it back.
WITH acts AS (
    SELECT
        cluster,
        about,
        ts,
        document ->> '$.action.decision.verb' AS verb,
        document
    FROM action
    WHERE kind = 'intent' AND ts < $until::TIMESTAMP
    QUALIFY
        row_number() OVER (
            PARTITION BY cluster, document -> '$.action.decision.subject' ORDER BY seq DESC
        ) = 1
),

ends AS (
    SELECT
        cluster,
        about,
        arg_max(document ->> '$.result', seq) FILTER (WHERE kind = 'outcome') AS result,
        bool_or(kind IN ('reversed', 'undo-started', 'object-gone')) AS is_over
    FROM action
    WHERE
        kind IN ('outcome', 'reversed', 'undo-started', 'object-gone') AND ts < $until::TIMESTAMP
    GROUP BY cluster, about
)

SELECT acts.document
FROM acts
INNER JOIN ends ON acts.cluster = ends.cluster AND acts.about = ends.about
WHERE
    acts.ts >= $since::TIMESTAMP
    AND acts.verb IN ('suspend', 'abort')
    AND ends.result = 'done'
    AND NOT ends.is_over
ORDER BY acts.ts, acts.about
