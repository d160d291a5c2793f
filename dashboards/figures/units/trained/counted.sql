-- What each workload trained on: samples or tokens from the job's own metric. A metric of the whole
-- job's throughput is counted once, from the pod with the largest value.
WITH pod_work AS (
    SELECT
        cluster,
        namespace,
        pod,
        work,
        sum(work_per_s * interval_s) AS own_work,
        sum(job_work_per_s * interval_s) AS job_work
    FROM step_sample
    WHERE ts >= $since AND ts < $until AND work IS NOT null
    GROUP BY ALL
)

SELECT
    p.cluster,
    p.namespace,
    p.owner.kind AS workload_kind,
    p.owner.name AS workload_name,
    t.work,
    coalesce(max(t.job_work), sum(t.own_work)) AS amount
FROM pod_work AS t
INNER JOIN pods AS p
    ON t.cluster = p.cluster AND t.namespace = p.namespace AND t.pod = p.pod
GROUP BY ALL
