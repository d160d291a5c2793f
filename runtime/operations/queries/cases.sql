-- The progress of each case: identified, notified, approved, acted upon, verified, what it saved.
WITH rows_of AS (
    SELECT
        *,
        -- an intent's `policy` is its whole text
        coalesce(
            document ->> '$.action.decision.policy', document ->> '$.policy'
        ) AS policy,
        CASE
            WHEN kind IN ('seen', 'notified', 'snapshot') THEN about
            ELSE coalesce(document ->> '$.finding', document ->> '$.action.decision.finding')
        END AS finding
    FROM action
    WHERE $cluster::VARCHAR IS NULL OR cluster = $cluster
),

seen AS (
    SELECT
        cluster,
        finding,
        min(ts) AS identified_at
    FROM rows_of
    WHERE kind = 'seen'
    GROUP BY cluster, finding
),

case_events AS (
    SELECT
        cluster,
        finding,
        policy,
        min(ts) FILTER (WHERE kind = 'notified') AS notified_at,
        min(ts) FILTER (WHERE kind = 'approval-requested') AS requested_at,
        min(ts) FILTER (WHERE kind = 'approved') AS approved_at,
        max(ts) FILTER (WHERE kind = 'intent') AS acted_at,
        arg_max(about, ts) FILTER (WHERE kind = 'intent') AS action
    FROM rows_of
    WHERE kind IN ('notified', 'approval-requested', 'approved', 'intent')
    GROUP BY cluster, finding, policy
),

ends AS (
    SELECT
        cluster,
        about AS action,
        min(ts) FILTER (WHERE document ->> '$.result' = 'done') AS verified_at,
        arg_max(document ->> '$.result', seq) FILTER (WHERE kind = 'outcome') AS result,
        max(ts) FILTER (WHERE kind = 'reversed') AS reversed_at
    FROM rows_of
    WHERE kind IN ('outcome', 'reversed')
    GROUP BY cluster, about
),

saved AS (
    SELECT
        cluster,
        action,
        sum(predicted_usd) AS predicted_usd,
        sum(gpu_hours) AS saved_gpu_hours,
        sum(usd) AS saved_usd
    FROM saving
    GROUP BY cluster, action
)

SELECT
    s.cluster,
    s.finding,
    f.analyzer,
    f.namespace,
    f.workload_kind,
    f.workload,
    f.usd AS wasted_usd,
    t.policy,
    s.identified_at,
    t.notified_at,
    t.requested_at,
    t.approved_at,
    t.acted_at,
    e.verified_at,
    CASE
        WHEN t.action IS NULL THEN if(t.notified_at IS NULL, 'identified', 'notified')
        ELSE coalesce(e.result, 'under way')
    END AS state,
    e.reversed_at,
    t.action,
    v.predicted_usd,
    v.saved_gpu_hours,
    v.saved_usd
FROM seen AS s
LEFT JOIN case_events AS t ON s.cluster = t.cluster AND s.finding = t.finding
LEFT JOIN ends AS e ON t.cluster = e.cluster AND t.action = e.action
LEFT JOIN saved AS v ON t.cluster = v.cluster AND t.action = v.action
LEFT JOIN finding AS f ON s.finding = f.id
WHERE
    coalesce(t.acted_at, s.identified_at) >= $since
    AND coalesce(t.acted_at, s.identified_at) < $until
ORDER BY s.identified_at DESC, s.finding, t.policy
