-- GPU-hours of idle findings without advice: a service level or another veto removed the advice.
-- They save nothing, but their hours are still idle hours in a finding.
SELECT
    coalesce(
        sum(
            gpu_hours
            * greatest(
                0,
                epoch(least("end", $until::TIMESTAMP)) - epoch(greatest(start, $since::TIMESTAMP))
            ) / greatest(1, epoch("end") - epoch(start))
        ),
        0
    ) AS gpu_hours
FROM latest_findings
WHERE
    verdict IN ('idle', 'partly idle')
    AND coalesce(json_array_length(document, '$.recommendations'), 0) = 0
    AND start < $until::TIMESTAMP AND "end" > $since::TIMESTAMP
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND ($namespace::VARCHAR IS null OR namespace = $namespace)
    AND ($team::VARCHAR IS null OR coalesce(document ->> '$.subject.team', namespace) = $team)
    AND ($model::VARCHAR IS null OR list_contains(document ->> '$.subject.models[*]', $model))
