-- GPU-hours of idle findings without advice: a service level or another veto removed the advice.
-- They save nothing, but their hours are still idle hours in a finding. So are those of findings
-- whose action took effect.
SELECT
    (
        SELECT coalesce(sum(a.idle_gpu_hours), 0)
        FROM advice AS a
        WHERE a.is_handled AND a.gpu_hours > 0
    ) + coalesce(
        sum(f.gpu_hours * f.part),
        0
    ) AS unadvised_gpu_hours
FROM parsed_findings AS f
WHERE
    f.verdict IN ('idle', 'partly idle')
    AND coalesce(len(f.body.recommendations), 0) = 0
    AND ($cluster::VARCHAR IS null OR f.cluster = $cluster)
    AND ($namespace::VARCHAR IS null OR f.namespace = $namespace)
    AND ($team::VARCHAR IS null OR coalesce(f.body.subject.team, f.namespace) = $team)
    AND ($model::VARCHAR IS null OR list_contains(f.body.subject.models, $model))
