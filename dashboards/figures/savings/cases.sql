-- One row per finding: what it would save, and how far it progressed. If the last analysis does not
-- have the finding any more (usual after an action), the dollars are the journal's.
WITH advised AS (
    SELECT
        id,
        any_value(cluster) AS cluster,
        any_value(team) AS team,
        any_value(workload) AS workload,
        any_value(analyzer) AS analyzer,
        any_value(kind) AS kind,
        bool_or(is_handled) AS is_handled,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        sum(usd) FILTER (WHERE saving = 'cash') AS cash_usd,
        sum(usd) FILTER (WHERE saving = 'commitment') AS commitment_usd,
        sum(at_most_gpu_hours) AS at_most_gpu_hours,
        sum(at_most_usd) AS at_most_usd
    FROM advice
    GROUP BY id
),

journal AS (
    SELECT
        cluster,
        kind,
        ts,
        coalesce(document ->> '$.action.decision.finding', document ->> '$.finding') AS finding
    FROM action
    WHERE
        ts >= $since AND ts < $until
        AND kind IN ('approval-requested', 'approved', 'intent')
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

-- begun in the window, and what has become of them since
acts AS (
    SELECT
        action,
        finding,
        ts,
        CASE WHEN result = 'done' AND restored_at IS NOT null THEN 'undone' ELSE result END
            AS result
    FROM acted
    WHERE ts >= $since AND ts < $until
),

measured AS (
    SELECT
        a.finding,
        sum(s.gpu_hours) AS gpu_hours,
        sum(s.usd) AS usd
    FROM saving AS s
    INNER JOIN acts AS a ON s.action = a.action
    GROUP BY a.finding
),

steps AS (
    SELECT
        finding,
        min(ts) FILTER (WHERE kind = 'approval-requested') AS requested_at,
        min(ts) FILTER (WHERE kind = 'approved') AS approved_at,
        min(ts) FILTER (WHERE kind = 'intent') AS acted_at
    FROM journal
    WHERE finding IS NOT null
    GROUP BY finding
),

ends AS (
    SELECT
        finding,
        arg_max(result, ts) AS result,
        bool_or(result = 'done') AS took
    FROM acts
    GROUP BY finding
),

merged AS (
    SELECT
        coalesce(a.id, s.finding) AS id,
        coalesce(a.cluster, f.cluster) AS cluster,
        coalesce(a.team, f.document ->> '$.subject.team', f.namespace, '(unknown)') AS team,
        coalesce(
            a.workload, f.namespace || '/' || f.workload_kind || '/' || f.workload, '(unknown)'
        ) AS workload,
        coalesce(a.analyzer, f.analyzer) AS analyzer,
        coalesce(a.kind, f.kind) AS kind,
        coalesce(a.gpu_hours, f.gpu_hours, 0) AS gpu_hours,
        CASE WHEN a.id IS null THEN f.usd ELSE a.usd END AS usd,
        a.cash_usd,
        a.commitment_usd,
        coalesce(a.at_most_gpu_hours, 0) AS at_most_gpu_hours,
        a.at_most_usd,
        s.requested_at,
        s.approved_at,
        s.acted_at,
        CASE WHEN a.is_handled THEN 'done' ELSE e.result END AS result,
        coalesce(a.is_handled, e.took, false) AS took,
        a.id IS NOT null AND NOT a.is_handled AS is_saveable,
        m.gpu_hours AS verified_gpu_hours,
        m.usd AS verified_usd
    FROM advised AS a
    FULL JOIN steps AS s ON a.id = s.finding
    LEFT JOIN finding AS f ON s.finding = f.id
    LEFT JOIN ends AS e ON coalesce(a.id, s.finding) = e.finding
    LEFT JOIN measured AS m ON coalesce(a.id, s.finding) = m.finding
)

SELECT
    *,
    took
    OR (is_saveable AND gpu_hours > 0 AND coalesce(approved_at, acted_at) IS NOT null)
        AS is_approved,
    CASE
        WHEN verified_gpu_hours IS NOT null THEN 'verified'
        WHEN took THEN 'acted'
        WHEN coalesce(approved_at, acted_at) IS NOT null THEN 'approved'
        WHEN requested_at IS NOT null THEN 'requested'
        ELSE 'identified'
    END AS stage
FROM merged
WHERE
    (gpu_hours > 0 OR at_most_gpu_hours > 0 OR acted_at IS NOT null)
    AND ($team::VARCHAR IS null OR team = $team)
    AND ($namespace::VARCHAR IS null OR split_part(workload, '/', 1) = $namespace)
