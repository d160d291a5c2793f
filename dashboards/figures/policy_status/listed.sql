-- Policies as the service reads them, and how far each may act: what the journal has about its
-- text.
WITH trust AS (
    -- A backtest whose row has no upper end is from a time when any share counted as a proof.
    SELECT
        *,
        kind = 'trusted' AND (
            (document ->> '$.by') IS DISTINCT FROM 'backtest'
            OR (document ->> '$.upper_end') IS NOT null
        ) AS is_trust
    FROM journal
    WHERE kind IN ('demoted', 'trusted', 'revoked')
),

trust_events AS (
    SELECT
        cluster,
        about AS policy,
        coalesce(max(seq) FILTER (WHERE kind = 'demoted'), -1) AS demoted,
        max(ts) FILTER (WHERE kind = 'demoted') AS demoted_at,
        arg_max(document, seq) FILTER (WHERE kind = 'demoted') AS demotion,
        coalesce(max(seq) FILTER (WHERE kind = 'revoked'), -1) AS revoked,
        coalesce(max(seq) FILTER (WHERE is_trust), -1) AS trusted,
        max(ts) FILTER (WHERE is_trust) AS trusted_at,
        arg_max(actor, seq) FILTER (WHERE is_trust) AS trusted_by,
        arg_max(document, seq) FILTER (WHERE is_trust) AS trusts
    FROM trust
    GROUP BY ALL
),

decided AS (
    SELECT
        cluster,
        policy,
        count(*) FILTER (WHERE ruling = 'allow' AND step IN ('act', 'snapshot')) AS acts,
        count(*) FILTER (WHERE ruling = 'allow' AND step IN ('notify', 'grace')) AS tells,
        count(*) FILTER (WHERE ruling = 'hold') AS holds,
        count(*) FILTER (WHERE ruling = 'deny') AS refuses,
        sum(usd_per_day) FILTER (WHERE ruling IN ('allow', 'hold') AND step <> 'observe')
            AS usd_per_day
    FROM plan
    GROUP BY ALL
),

did AS (
    SELECT
        cluster,
        policy,
        count(*) AS actions,
        count(restored_at) AS taken_back
    FROM acted
    GROUP BY ALL
)

SELECT
    p.cluster,
    p.policy,
    p.ts,
    p.fingerprint,
    p.description,
    p.mode,
    p.source,
    p.matches,
    p.allows,
    p.stages,
    p.budgets,
    p.approvals,
    p.reversal_rate,
    p.reversal_within_s,
    p.closed,
    p.opens_at,
    CASE
        WHEN p.mode = 'notify' THEN 'notifies'
        WHEN s.demoted > s.trusted THEN 'demoted'
        WHEN s.revoked < s.trusted AND (s.trusts ->> '$.fingerprint') = p.fingerprint THEN 'may act'
        ELSE 'not trusted yet'
    END AS stage,
    CASE WHEN s.demoted > s.trusted THEN s.demoted_at END AS demoted_at,
    CASE WHEN stage = 'may act' AND (s.trusts ->> '$.by') = 'hand' THEN s.trusted_by END
        AS trusted_by,
    CASE WHEN stage = 'may act' AND (s.trusts ->> '$.by') = 'hand' THEN s.trusted_at END
        AS trusted_at,
    CASE WHEN stage = 'may act' THEN s.trusts ->> '$.reason' END AS trust_reason,
    coalesce(s.demotion ->> '$.reversed', s.demotion ->> '$.taken_back')::INTEGER AS demoted_for,
    coalesce(d.acts, 0) AS does,
    coalesce(d.tells, 0) AS tells,
    coalesce(d.holds, 0) AS holds,
    coalesce(d.refuses, 0) AS refuses,
    d.usd_per_day,
    coalesce(a.actions, 0) AS actions,
    coalesce(a.taken_back, 0) AS taken_back
FROM policy AS p
LEFT JOIN trust_events AS s ON p.cluster = s.cluster AND p.policy = s.policy
LEFT JOIN decided AS d ON p.cluster = d.cluster AND p.policy = d.policy
LEFT JOIN did AS a ON p.cluster = a.cluster AND p.policy = a.policy
WHERE $cluster::VARCHAR IS null OR p.cluster = $cluster
ORDER BY p.cluster ASC, p.policy ASC
LIMIT $most
