-- GPUs of each node that anybody held, the job itself too, at the moments when some jobs started. A
-- device that several pods share counts for each: what is free is never overstated.
WITH asked AS (
    SELECT
        m.gang,
        m.cluster,
        m.model,
        make_timestamp(m.moment) AS moment -- noqa: RF01
    FROM (
        SELECT
            unnest(
                from_json(
                    $gangs,
                    '[{
                        "gang": "BIGINT", "cluster": "VARCHAR", "model": "VARCHAR",
                        "moment": "BIGINT"
                    }]'
                )
            ) AS m
    ) AS listed
),

held AS (
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
        start AS moment,
        1 AS change
    FROM held
    UNION ALL
    SELECT
        cluster,
        node,
        model,
        "end" AS moment,
        -1 AS change
    FROM held
),

counts AS (
    SELECT DISTINCT
        cluster,
        node,
        model,
        moment,
        sum(change) OVER (PARTITION BY cluster, node, model ORDER BY moment) AS gpus
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
        a.moment,
        n.cluster,
        n.node,
        n.model
    FROM asked AS a
    INNER JOIN nodes AS n ON a.cluster = n.cluster AND a.model = n.model
)

SELECT
    p.gang,
    p.node,
    c.gpus::BIGINT AS gpus
FROM places AS p
ASOF INNER JOIN counts AS c
    ON p.cluster = c.cluster AND p.node = c.node AND p.model = c.model AND p.moment >= c.moment
WHERE c.gpus > 0
ORDER BY p.gang, p.node
