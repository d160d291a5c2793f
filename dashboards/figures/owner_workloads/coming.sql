-- What policies plan for an owner's workloads, and the owner's requests.
WITH keeps AS (
    SELECT
        cluster,
        about AS subject,
        arg_max((document ->> '$.until')::TIMESTAMPTZ::TIMESTAMP, seq) AS until
    FROM journal
    WHERE kind = 'keep'
    GROUP BY ALL
),

notices AS (
    SELECT
        cluster,
        about AS finding,
        min(ts) AS notified_at
    FROM journal
    WHERE kind = 'notified'
    GROUP BY ALL
)

SELECT
    p.cluster,
    p.subject,
    p.namespace,
    p.workload_kind,
    p.workload,
    p.owner,
    p.verb,
    p.policy,
    p.finding,
    p.step,
    p.ruling,
    p.gate,
    p.why,
    p.next_at,
    p.gpus,
    p.usd_per_day,
    p.acts,
    p.ts AS at,
    n.notified_at,
    greatest(k.until, r.until) AS kept_until,
    CASE
        WHEN p.gate IN ('keep', 'kept') THEN 'nothing: you keep it'
        WHEN p.ruling = 'deny' THEN 'nothing'
        WHEN p.step IN ('act', 'snapshot') AND p.gate = 'approval'
            THEN p.verb || ', once somebody approves it'
        WHEN p.step IN ('act', 'snapshot') AND p.ruling = 'allow' AND b.result IS NOT null
            THEN p.verb || ': ' || b.result
        WHEN p.step IN ('act', 'snapshot') AND p.ruling = 'allow'
            THEN p.verb || ', in the next turn'
        WHEN p.next_at IS NOT null AND p.gate = 'grace'
            THEN p.verb || ', unless it works again before'
        WHEN p.step IN ('notify', 'grace') AND p.ruling = 'allow'
            THEN 'you get a notice; nothing changes'
        WHEN p.ruling = 'hold' THEN 'nothing yet: a rule holds it'
        ELSE 'nothing: it is only watched'
    END AS says
FROM planned AS p
LEFT JOIN keeps AS k
    ON
        p.cluster = k.cluster
        AND concat_ws('/', p.cluster, p.workload_kind, p.namespace, p.workload) = k.subject
LEFT JOIN snoozes AS r ON p.cluster = r.cluster AND p.finding = r.finding
LEFT JOIN begun AS b ON p.cluster = b.cluster AND p.finding = b.finding AND p.ts <= b.ts
LEFT JOIN notices AS n ON p.cluster = n.cluster AND p.finding = n.finding
WHERE
    list_contains($owners, p.owner)
    OR list_contains($owners, p.namespace)
ORDER BY
    CASE
        WHEN p.step IN ('act', 'snapshot', 'grace') AND p.ruling <> 'deny' THEN 0
        WHEN p.step = 'notify' AND p.ruling = 'allow' THEN 1
        WHEN p.ruling = 'hold' THEN 2
        ELSE 3
    END ASC,
    p.next_at ASC NULLS LAST,
    p.usd_per_day DESC NULLS LAST,
    p.subject ASC
