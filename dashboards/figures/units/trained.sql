-- What trained work cost: samples or tokens as the job's own metric counts them. A metric that
-- tells the whole job's throughput is counted once, from the pod that tells most of it.
WITH told AS (
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
),

counted AS (
    SELECT
        p.cluster,
        p.workload,
        t.work,
        coalesce(max(t.job_work), sum(t.own_work)) AS amount
    FROM told AS t
    INNER JOIN pods AS p
        ON t.cluster = p.cluster AND t.namespace = p.namespace AND t.pod = p.pod
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.team,
    s.workload,
    c.work,
    c.amount,
    s.gpu_hours,
    s.usd,
    1e6 * s.usd::DOUBLE / nullif(c.amount, 0) AS usd_per_million
FROM counted AS c
INNER JOIN spent AS s ON c.cluster = s.cluster AND c.workload = s.workload
WHERE c.amount > 0
ORDER BY s.usd DESC NULLS LAST, s.workload ASC, c.work ASC
