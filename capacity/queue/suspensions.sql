-- Jobs that Fallow suspended and whose suspension stands at a time: the newest act on the workload
-- is that stop, it took effect, and neither its owner, a controller nor an undo took it back. With
-- the first request of its owner to resume it once it has room; the undo withdraws that too.
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

later_rows AS (
    SELECT
        cluster,
        about,
        arg_max(document ->> '$.result', seq) FILTER (WHERE kind = 'outcome') AS result,
        bool_or(kind IN ('reversed', 'undo-started', 'object-gone')) AS is_over,
        arg_min(actor, seq) FILTER (WHERE kind = 'resume-requested') AS requested_by,
        min(ts) FILTER (WHERE kind = 'resume-requested') AS requested_at
    FROM action
    WHERE
        kind IN ('outcome', 'reversed', 'undo-started', 'object-gone', 'resume-requested')
        AND ts < $until::TIMESTAMP
    GROUP BY cluster, about
)

SELECT
    acts.document,
    later_rows.requested_by,
    later_rows.requested_at
FROM acts
INNER JOIN later_rows ON acts.cluster = later_rows.cluster AND acts.about = later_rows.about
WHERE
    greatest(acts.ts, later_rows.requested_at) >= $since::TIMESTAMP
    AND list_contains($verbs::VARCHAR[], acts.verb)
    AND later_rows.result = 'done'
    AND NOT later_rows.is_over
ORDER BY acts.ts, acts.about
