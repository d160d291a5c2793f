-- The throughput of each job by its number of GPUs: the median of its whole hours. An hour counts
-- if the same GPUs were allocated for all of it and most of it has samples.
WITH pods AS MATERIALIZED (
    SELECT
        cluster,
        namespace,
        pod,
        time_bucket(INTERVAL 1 HOUR, ts) AS hour,
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

paces AS MATERIALIZED (
    SELECT
        o.cluster,
        o.namespace,
        o.workload_kind,
        o.workload,
        p.hour,
        any_value(o.team) AS team,
        any_value(o.family) AS family,
        max(p.work) AS work,
        count(*) AS reporting_pods,
        max(p.steps_per_s) AS steps_per_s,
        sum(p.work_per_s) AS work_per_s,
        max(p.job_work_per_s) AS job_work_per_s,
        max(p.world_size) AS world_size
    FROM pods AS p
    INNER JOIN owners AS o ON p.cluster = o.cluster AND p.namespace = o.namespace AND p.pod = o.pod
    WHERE o.workload IS NOT null
    GROUP BY ALL
),

-- Devices allocated to a job from one time to another, before the join with its hours: in groups of
-- eight.
spans AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        a.start,
        a."end",
        count(*) AS gpus,
        count(DISTINCT a.pod_uid) AS pods,
        min(d.gpu_model) AS model,
        max(d.gpu_model) AS last_model,
        min(coalesce(a.share, 1.0)) AS share,
        min(coalesce(d.weight, 1.0)) AS weight
    FROM allocation AS a
    LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    WHERE a.start < $until AND a."end" > $since AND a.workload IS NOT null
    GROUP BY ALL
),

sizes AS (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        p.hour,
        sum(s.gpus)::INTEGER AS gpus,
        sum(s.pods) AS pods,
        min(s.model) AS model
    FROM paces AS p
    INNER JOIN spans AS s
        ON
            p.cluster = s.cluster AND p.namespace = s.namespace
            AND p.workload_kind = s.workload_kind AND p.workload = s.workload
            AND p.hour >= s.start AND p.hour + INTERVAL 1 HOUR <= s."end"
    GROUP BY ALL
    -- Parts of devices and mixed models have no size.
    HAVING min(s.share) > 0.999 AND min(s.weight) > 0.999 AND min(s.model) = max(s.last_model)
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
        p.job_work_per_s, CASE WHEN p.reporting_pods = s.pods THEN p.work_per_s END
    )) AS work_per_s
FROM paces AS p
INNER JOIN sizes AS s
    ON
        p.cluster = s.cluster AND p.namespace = s.namespace
        AND p.workload_kind = s.workload_kind AND p.workload = s.workload AND p.hour = s.hour
GROUP BY ALL
HAVING
    median(coalesce(
        p.job_work_per_s,
        CASE WHEN p.reporting_pods = s.pods THEN p.work_per_s END,
        p.steps_per_s
    )) > 0
ORDER BY ALL
