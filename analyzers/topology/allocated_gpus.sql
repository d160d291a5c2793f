-- Allocated GPUs of each node, including the job's own, at the times when some jobs started. A
-- device that several pods share counts for each: free capacity is never overstated.
WITH starts AS (
    SELECT
        m.gang,
        m.cluster,
        m.model,
        make_timestamp(m.started_at) AS started_at -- noqa: RF01
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
            ) AS m
    ) AS listed
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
    UNION ALL
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

places AS (
    SELECT
        a.gang,
        a.started_at,
        n.cluster,
        n.node,
        n.model
    FROM starts AS a
    INNER JOIN nodes AS n ON a.cluster = n.cluster AND a.model = n.model
)

SELECT
    p.gang,
    p.node,
    c.gpus::BIGINT AS gpus
FROM places AS p
ASOF INNER JOIN counts AS c
    ON
        p.cluster = c.cluster AND p.node = c.node AND p.model = c.model
        AND p.started_at >= c.changed_at
WHERE c.gpus > 0
ORDER BY p.gang, p.node
