-- How fast each job went on how many GPUs: the median of its whole hours, by size. An hour counts
-- when the same GPUs were held all through it and most of it is told.
WITH owners AS (
    SELECT
        cluster,
        namespace,
        pod,
        max_by(workload_kind, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS workload_kind,
        max_by(workload, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS workload,
        max_by(team, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS team,
        max_by(
            json_extract_string(annotations, '$."fallow.dev/family"'),
            coalesce(last_seen, TIMESTAMP '1970-01-01')
        ) AS family
    FROM pod
    GROUP BY ALL
),

pods AS (
    SELECT
        cluster,
        namespace,
        pod,
        date_trunc('hour', ts) AS hour,
        max(work) AS work,
        avg(steps_per_s) AS steps_per_s,
        avg(work_per_s) AS work_per_s,
        avg(job_work_per_s) AS job_work_per_s,
        max(world_size) AS world_size
    FROM step_sample
    WHERE ts >= $since AND ts < $until
    GROUP BY ALL
    HAVING sum(interval_s) >= 3000
),

paces AS (
    SELECT
        o.cluster,
        o.namespace,
        o.workload_kind,
        o.workload,
        p.hour,
        any_value(o.team) AS team,
        any_value(o.family) AS family,
        max(p.work) AS work,
        count(*) AS told,
        max(p.steps_per_s) AS steps_per_s,
        sum(p.work_per_s) AS work_per_s,
        max(p.job_work_per_s) AS job_work_per_s,
        max(p.world_size) AS world_size
    FROM pods AS p
    INNER JOIN owners AS o ON p.cluster = o.cluster AND p.namespace = o.namespace AND p.pod = o.pod
    WHERE o.workload IS NOT null
    GROUP BY ALL
),

sizes AS (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        p.hour,
        count(DISTINCT a.device)::INTEGER AS gpus,
        count(DISTINCT a.pod_uid) AS pods,
        max(d.gpu_model) AS model
    FROM paces AS p
    INNER JOIN allocation AS a
        ON
            p.cluster = a.cluster AND p.namespace = a.namespace
            AND p.workload_kind = a.workload_kind AND p.workload = a.workload
            AND p.hour >= a.start AND p.hour + INTERVAL 1 HOUR <= a."end"
    LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    GROUP BY ALL
    -- Parts of devices and mixed models are no size.
    HAVING
        min(coalesce(a.share, 1.0)) > 0.999
        AND min(coalesce(d.weight, 1.0)) > 0.999
        AND count(DISTINCT d.gpu_model) = 1
)

SELECT
    p.cluster,
    p.namespace,
    p.workload_kind,
    p.workload,
    s.model,
    s.gpus,
    max(p.team) AS team,
    max(p.family) AS family,
    max(p.work) AS work,
    count(*) AS hours,
    min(p.hour) AS first_hour,
    max(p.hour) AS last_hour,
    max(p.world_size) AS world_size,
    median(p.steps_per_s) AS steps_per_s,
    median(coalesce(
        p.job_work_per_s, CASE WHEN p.told = s.pods THEN p.work_per_s END
    )) AS work_per_s
FROM paces AS p
INNER JOIN sizes AS s
    ON
        p.cluster = s.cluster AND p.namespace = s.namespace
        AND p.workload_kind = s.workload_kind AND p.workload = s.workload AND p.hour = s.hour
GROUP BY ALL
HAVING median(coalesce(p.job_work_per_s, p.work_per_s, p.steps_per_s)) > 0
ORDER BY ALL
