-- The advice of each analyzer's last run, a row per recommendation: what it saves in addition to
-- those before it in the waterfall, for the part of its finding in the window. `is_handled`: an
-- action on the finding took effect, so that nothing can be saved any more. `at_most`: the bound of
-- hours in use, in no saving. What is saved of waste is at most the cluster's waste in the window.
WITH advised_findings AS (
    SELECT
        f.id,
        f.analyzer,
        f.kind,
        f.cluster,
        CASE WHEN f.namespace = '' THEN '(platform)' ELSE f.namespace END AS namespace,
        CASE
            WHEN f.workload_kind = 'Team' THEN f.workload
            WHEN f.namespace = '' THEN '(platform)'
            ELSE coalesce(f.body.subject.team, f.namespace)
        END AS team,
        CASE
            WHEN f.namespace = '' THEN f.workload_kind || '/' || f.workload
            ELSE f.namespace || '/' || f.workload_kind || '/' || f.workload
        END AS workload,
        f.body.subject.models,
        f.evidence,
        f.start,
        f."end",
        f.found_at,
        f.part,
        h.finding IS NOT null AS is_handled,
        unnest(f.body.recommendations) AS advised
    FROM parsed_findings AS f
    LEFT JOIN handled_findings AS h ON f.cluster = h.cluster AND f.id = h.finding
),

granted AS (
    SELECT
        a.id,
        a.analyzer,
        a.kind,
        a.cluster,
        a.namespace,
        a.team,
        a.workload,
        a.models,
        a.evidence,
        a.start,
        a."end",
        a.found_at,
        -- A verb that is also a name of code, such as raise-limits, is read as words.
        CASE
            WHEN contains(a.advised.verb, ' ') THEN a.advised.verb
            ELSE replace(a.advised.verb, '-', ' ')
        END AS verb,
        a.advised.target,
        coalesce(a.advised.saving, 'capacity') AS saving,
        coalesce(a.advised.effort, 'quick win') AS effort,
        coalesce(a.advised.marginal_gpu_hours, 0) * a.part AS gpu_hours,
        (a.advised.marginal_usd::DOUBLE * a.part)::DECIMAL(18, 6) AS usd,
        a.advised.marginal_idle_gpu_hours * a.part AS idle_gpu_hours,
        a.advised.marginal_in_use_gpu_hours * a.part AS in_use_gpu_hours,
        (a.advised.marginal_in_use_usd::DOUBLE * a.part)::DECIMAL(18, 6) AS in_use_usd,
        coalesce(a.advised.at_most_gpu_hours, 0) * a.part AS at_most_gpu_hours,
        (a.advised.at_most_usd::DOUBLE * a.part)::DECIMAL(18, 6) AS at_most_usd,
        a.is_handled
    FROM advised_findings AS a
),

waste AS (
    SELECT
        cluster,
        sum(gpu_seconds) / 3600 AS gpu_hours,
        sum(usd)::DOUBLE AS usd
    FROM ledger_1h
    WHERE
        bucket >= $since
        AND bucket < $until
        AND state IN ('idle', 'lost', 'free', 'stranded', 'unavailable')
    GROUP BY cluster
),

-- The waste over what findings have of it: below 1 where findings of a longer time are spread over
-- hours that others have too.
limits AS (
    SELECT
        g.cluster,
        least(1, any_value(w.gpu_hours) / nullif(sum(g.gpu_hours - g.in_use_gpu_hours), 0))
            AS gpu_hours,
        least(1, any_value(w.usd) / nullif(sum(g.usd - g.in_use_usd), 0)) AS usd
    FROM granted AS g
    INNER JOIN waste AS w ON g.cluster = w.cluster
    GROUP BY g.cluster
)

SELECT
    g.* REPLACE ( -- noqa: AM04
        coalesce(g.in_use_gpu_hours + (g.gpu_hours - g.in_use_gpu_hours) * l.gpu_hours, g.gpu_hours)
            AS gpu_hours,
        coalesce(
            (g.in_use_usd::DOUBLE + (g.usd - g.in_use_usd)::DOUBLE * l.usd)::DECIMAL(18, 6), g.usd
        ) AS usd,
        g.idle_gpu_hours * coalesce(l.gpu_hours, 1) AS idle_gpu_hours
    )
FROM granted AS g
LEFT JOIN limits AS l ON g.cluster = l.cluster
WHERE
    ($cluster::VARCHAR IS null OR g.cluster = $cluster)
    AND ($team::VARCHAR IS null OR g.team = $team)
    AND ($namespace::VARCHAR IS null OR g.namespace = $namespace)
    AND ($model::VARCHAR IS null OR list_contains(g.models, $model))
