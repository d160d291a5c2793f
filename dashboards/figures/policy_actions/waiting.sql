-- Pending approvals: requested, without an approval, or with one where two are required.
WITH requests AS (
    SELECT
        cluster,
        about AS id,
        any_value(document ->> '$.policy') AS policy,
        any_value(document ->> '$.finding') AS finding,
        any_value(document ->> '$.verb') AS verb,
        any_value(document ->> '$.subject[1]') AS workload_kind,
        any_value(document ->> '$.subject[2]') AS namespace,
        any_value(document ->> '$.subject[3]') AS workload,
        min(ts) AS requested_at,
        any_value(actor) AS requested_by
    FROM journal
    WHERE kind = 'approval-requested'
    GROUP BY cluster, about
),

agreed AS (
    SELECT
        cluster,
        about AS id,
        count(DISTINCT actor) AS approvals,
        string_agg(DISTINCT actor, ', ') AS approved_by
    FROM journal
    WHERE kind = 'approved'
    GROUP BY cluster, about
),

teams AS (
    SELECT
        h.cluster,
        h.namespace,
        h.workload_kind,
        h.workload,
        any_value(h.team) AS team
    FROM allocation AS h
    SEMI JOIN requests AS a
        ON
            h.cluster = a.cluster
            AND h.namespace = a.namespace
            AND h.workload_kind = a.workload_kind
            AND h.workload = a.workload
    GROUP BY ALL
)

SELECT
    a.id,
    a.cluster,
    concat_ws('/', nullif(a.namespace, ''), a.workload_kind, a.workload) AS subject,
    a.verb,
    a.policy,
    a.finding,
    a.requested_at,
    a.requested_by,
    g.approved_by,
    coalesce(p.owner, t.team, a.namespace) AS owner,
    a.namespace,
    p.gpus,
    p.usd_per_day,
    p.finding IS NOT null AS planned
FROM requests AS a
LEFT JOIN agreed AS g ON a.cluster = g.cluster AND a.id = g.id
LEFT JOIN teams AS t
    ON
        a.cluster = t.cluster
        AND a.namespace = t.namespace
        AND a.workload_kind = t.workload_kind
        AND a.workload = t.workload
LEFT JOIN planned AS p ON a.cluster = p.cluster AND a.finding = p.finding AND a.policy = p.policy
WHERE
    (g.approvals IS null OR p.gate = 'approval')
    AND ($namespace::VARCHAR IS null OR a.namespace = $namespace)
    AND ($team::VARCHAR IS null OR coalesce(p.owner, t.team, a.namespace) = $team)
ORDER BY planned DESC, p.usd_per_day DESC NULLS LAST, a.requested_at ASC
LIMIT $most
