-- What the pods of each node requested at each time. Without device samples, pods with a node that
-- have not ended count, and all pods of an imported placement.
WITH times AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($nths) AS nth,
        unnest($times) AS at,
        unnest($stills) AS still
),

lives AS (
    SELECT
        cluster,
        uid,
        node,
        coalesce(cpu_request_milli, 0) AS cpu_milli,
        coalesce(memory_request_bytes, 0) AS memory_bytes,
        coalesce(phase, '') IN ('Succeeded', 'Failed')
        AND coalesce((labels ->> '$.placement'), '') <> 'imported' AS ended,
        coalesce(scheduled_at, started_at, created_at, first_seen) AS from_at,
        coalesce(
            finished_at, CASE WHEN ended THEN last_seen ELSE last_seen + to_seconds($unseen_s) END
        ) AS to_at
    FROM pod
    WHERE node IS NOT null AND cluster IN (SELECT unnest($clusters))
)

SELECT
    m.nth,
    l.cluster,
    l.node,
    sum(l.cpu_milli)::BIGINT AS cpu_milli,
    sum(l.memory_bytes)::BIGINT AS memory_bytes
FROM times AS m
INNER JOIN lives AS l
    ON
        m.cluster = l.cluster
        AND (
            m.still AND NOT l.ended
            OR NOT m.still AND m.at >= l.from_at AND m.at < l.to_at
        )
GROUP BY m.nth, l.cluster, l.node
ORDER BY l.cluster, l.node, m.nth
