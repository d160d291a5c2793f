-- One row per action of the journal: its object, policy and result, and who undid it.
WITH intents AS (
    SELECT
        cluster,
        about AS action,
        ts,
        actor,
        document ->> '$.action.decision.policy' AS policy,
        document ->> '$.action.decision.finding' AS finding,
        document ->> '$.action.decision.verb' AS verb,
        coalesce(document ->> '$.action.decision.owner', '') AS owner,
        (document ->> '$.action.decision.subject[1]') AS workload_kind,
        (document ->> '$.action.decision.subject[2]') AS namespace,
        (document ->> '$.action.decision.subject[3]') AS workload,
        document ->> '$.action.intent.lost' AS lost
    FROM journal
    WHERE kind = 'intent'
),

ends AS (
    SELECT
        cluster,
        about AS action,
        arg_max(document ->> '$.result', seq) FILTER (WHERE kind = 'outcome') AS result,
        arg_max(document ->> '$.reasons[0].text', seq) FILTER (WHERE kind = 'outcome') AS why,
        arg_max(document ->> '$.freed_gpus', seq) FILTER (WHERE kind = 'outcome') AS freed_gpus,
        max(seq) FILTER (WHERE kind = 'outcome') AS concluded,
        max(seq) FILTER (WHERE kind = 'undo-started') AS undoing,
        arg_max(document ->> '$.by', seq) FILTER (WHERE kind = 'reversed') AS restored_by,
        max(ts) FILTER (WHERE kind = 'reversed') AS restored_at,
        bool_or(kind = 'object-gone') AS ended
    FROM journal
    WHERE kind IN ('outcome', 'undo-started', 'reversed', 'object-gone')
    GROUP BY ALL
)

SELECT
    i.cluster,
    i.action,
    i.ts,
    i.actor,
    i.policy,
    i.finding,
    i.verb,
    i.owner,
    i.workload_kind,
    i.namespace,
    i.workload,
    i.lost,
    e.why,
    e.freed_gpus::DOUBLE AS freed_gpus,
    e.restored_by,
    e.restored_at,
    coalesce(e.ended, false) AS ended,
    CASE
        WHEN e.concluded IS null OR coalesce(e.undoing, 0) > e.concluded THEN 'under way'
        ELSE e.result
    END AS result
FROM intents AS i
LEFT JOIN ends AS e ON i.cluster = e.cluster AND i.action = e.action
