-- The rows of the last plan of each cluster, filtered, with the first reason as a sentence and all
-- of them in `why`. Dollars are those of a whole day at the case's rate; null = no price, or only a
-- bound of hours in use.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    ts,
    policy,
    finding,
    request,
    CASE WHEN contains(verb, ' ') THEN verb ELSE replace(verb, '-', ' ') END AS verb,
    step,
    ruling,
    reasons,
    next_at,
    owner,
    gpus,
    gpu_hours_per_day,
    usd_per_day,
    aborted,
    acts,
    reasons ->> '$[0].gate' AS gate,
    -- A gate joins what it lacks by "; ": the first is shown, the others are counted.
    split_part(reasons ->> '$[0].text', '; ', 1) || coalesce(
        ' (+' || nullif(
            json_array_length(reasons)::INTEGER
            + len(string_split(reasons ->> '$[0].text', '; ')) - 2, 0
        )::VARCHAR || ')', ''
    ) AS reason,
    array_to_string(from_json(reasons -> '$[*].text', '["VARCHAR"]'), '; ') AS why,
    concat_ws('/', nullif(namespace, ''), workload_kind, workload) AS subject
FROM plan
WHERE
    ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND ($team::VARCHAR IS null OR owner = $team)
    AND (
        $namespace::VARCHAR IS null
        OR CASE WHEN namespace = '' THEN '(platform)' ELSE namespace END = $namespace
    )
