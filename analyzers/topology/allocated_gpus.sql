-- The allocated GPUs of each node at the time when each job of $gangs started, the job's own
-- included. A device that several pods share counts once for each pod, so that free capacity is
-- never overstated.
WITH starts AS (
    SELECT
        job.gang,
        job.cluster,
        job.model,
        make_timestamp(job.started_at) AS started_at -- noqa: RF01
    FROM (
        SELECT
            unnest(
                from_json(
                    $gangs,
                    '[{
                        "gang": "BIGINT", "cluster": "VARCHAR", "model": "VARCHAR",
                        "started_at": "BIGINT"
                    }]'
                )
            ) AS job
    ) AS jobs
),

allocations AS (
    SELECT
        d.cluster,
        d.node,
        d.gpu_model AS model,
        a.start,
        a."end"
    FROM allocation AS a
    INNER JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
    WHERE d.parent IS null AND d.node IS NOT null
),

changes AS (
    SELECT
        cluster,
        node,
        model,
        start AS changed_at,
        1 AS change
    FROM allocations
    UNION ALL BY NAME
    SELECT
        cluster,
        node,
        model,
        "end" AS changed_at,
        -1 AS change
    FROM allocations
),

counts AS (
    SELECT DISTINCT
        cluster,
        node,
        model,
        changed_at,
        sum(change) OVER (PARTITION BY cluster, node, model ORDER BY changed_at) AS gpus
    FROM changes
),

nodes AS (
    SELECT DISTINCT
        cluster,
        node,
        model
    FROM counts
),

job_nodes AS (
    SELECT
        s.gang,
        s.started_at,
        n.cluster,
        n.node,
        n.model
    FROM starts AS s
    INNER JOIN nodes AS n ON s.cluster = n.cluster AND s.model = n.model
)

SELECT
    j.gang,
    j.node,
    c.gpus::BIGINT AS gpus
FROM job_nodes AS j
ASOF INNER JOIN counts AS c
    ON
        j.cluster = c.cluster AND j.node = c.node AND j.model = c.model
        AND j.started_at >= c.changed_at
WHERE c.gpus > 0
ORDER BY j.gang, j.node
