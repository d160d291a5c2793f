-- The advice of each analyzer's last run, a row per recommendation: what it saves in addition to
-- those before it in the waterfall, for the part of its finding in the window. `is_handled`: an
-- action on the finding took effect, so that nothing can be saved any more. `at_most`: the bound of
-- hours in use, in no saving.
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
)

SELECT
    advised_findings.id,
    advised_findings.analyzer,
    advised_findings.kind,
    advised_findings.cluster,
    advised_findings.namespace,
    advised_findings.team,
    advised_findings.workload,
    advised_findings.evidence,
    advised_findings.start,
    advised_findings."end",
    advised_findings.found_at,
    -- A verb that is also a name of code, such as raise-limits, is read as words.
    CASE
        WHEN contains(advised.verb, ' ') THEN advised.verb ELSE replace(advised.verb, '-', ' ')
    END AS verb,
    advised.target,
    coalesce(advised.saving, 'capacity') AS saving,
    coalesce(advised.effort, 'quick win') AS effort,
    coalesce(advised.marginal_gpu_hours, 0) * advised_findings.part AS gpu_hours,
    (advised.marginal_usd::DOUBLE * advised_findings.part)::DECIMAL(18, 6) AS usd,
    advised.marginal_idle_gpu_hours * advised_findings.part AS idle_gpu_hours,
    advised.marginal_in_use_gpu_hours * advised_findings.part AS in_use_gpu_hours,
    (advised.marginal_in_use_usd::DOUBLE * advised_findings.part)::DECIMAL(18, 6) AS in_use_usd,
    coalesce(advised.at_most_gpu_hours, 0) * advised_findings.part AS at_most_gpu_hours,
    (advised.at_most_usd::DOUBLE * advised_findings.part)::DECIMAL(18, 6) AS at_most_usd,
    advised_findings.is_handled
FROM advised_findings
WHERE
    ($cluster::VARCHAR IS null OR advised_findings.cluster = $cluster)
    AND ($team::VARCHAR IS null OR advised_findings.team = $team)
    AND ($namespace::VARCHAR IS null OR advised_findings.namespace = $namespace)
    AND ($model::VARCHAR IS null OR list_contains(advised_findings.models, $model))
