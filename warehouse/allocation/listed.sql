-- Devices that a DRA claim, a HAMi annotation or an imported placement assigns to a pod. An element
-- is a UUID, or an object with `device` (or `uuid`) and an optional `share`. Anybody who may create
-- a pod may write an annotation (`by_annotation`): without a GPU request it assigns nothing
-- (`refusal`). Where no register of the node has the device (`estimated`), the node on which
-- telemetry sees it decides.
WITH elements AS (
    SELECT
        cluster,
        uid,
        node,
        requests_none,
        unnest(json_extract(devices, '$[*]')) AS element
    FROM lives
    WHERE json_valid(devices)
),

devices AS (
    SELECT
        cluster,
        uid,
        any_value(node) AS node,
        coalesce(element ->> '$.device', element ->> '$.uuid', element ->> '$') AS device,
        max(try_cast(element ->> '$.share' AS DOUBLE)) AS share,
        bool_and(
            coalesce(element ->> '$.source' = 'hami', false)
            OR coalesce(element ->> '$.estimated' = 'true', false)
        ) AS by_annotation,
        bool_or(coalesce(element ->> '$.estimated' = 'true', false)) AS estimated,
        bool_or(requests_none) AS requests_none
    FROM elements
    GROUP BY ALL
)

SELECT
    e.cluster,
    e.uid,
    e.device,
    e.share,
    e.by_annotation,
    e.estimated AND n.node IS null AS estimated,
    NOT e.estimated AS registered,
    CASE
        WHEN e.by_annotation AND e.requests_none THEN 'it requests no GPU'
        WHEN e.estimated AND n.node <> e.node THEN 'it does not run on the node of the GPU'
    END AS refusal
FROM devices AS e
LEFT JOIN device AS d ON e.cluster = d.cluster AND e.device = d.device
LEFT JOIN node AS n ON d.cluster = n.cluster AND d.node = n.node
