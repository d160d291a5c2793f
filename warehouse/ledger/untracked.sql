-- GPUs that a node has by its inventory and nobody looks at: `<node>/untracked<k>`, unknown.
-- A device that is there for all but five minutes counts as there: sources start and end apart.
WITH present AS (
    SELECT
        cluster,
        node,
        pool,
        gpu_model,
        gpu_count,
        unnest(
            generate_series(
                time_bucket(to_seconds($step_s), greatest(first_seen, $since)),
                least(last_seen, $until) - INTERVAL 1 MICROSECOND,
                to_seconds($step_s)
            )
        ) AS bucket,
        greatest(first_seen, $since) AS from_at,
        least(last_seen, $until) AS to_at
    FROM node
    WHERE gpu_count > 0 AND first_seen < $until AND last_seen > $since
),

there AS (
    SELECT
        * EXCLUDE (from_at, to_at),
        epoch(least(to_at, bucket + to_seconds($step_s))) - epoch(greatest(from_at, bucket))
            AS node_s
    FROM present
),

placed AS (
    SELECT DISTINCT
        device_id,
        cluster,
        node
    FROM spans
),

tracked AS (
    SELECT
        s.cluster,
        s.node,
        c.bucket,
        c.device_id,
        sum(epoch(c.to_at) - epoch(c.from_at)) AS device_s
    FROM cells AS c
    INNER JOIN placed AS s
        ON c.device_id = s.device_id
    WHERE c.kind <> 'instance'
    GROUP BY s.cluster, s.node, c.bucket, c.device_id
),

missing AS (
    SELECT
        p.cluster,
        p.node,
        p.pool,
        p.gpu_model,
        p.bucket,
        p.node_s,
        p.node_s * p.gpu_count - coalesce(
            sum(
                CASE
                    WHEN t.device_s >= p.node_s - 300 THEN p.node_s
                    ELSE t.device_s
                END
            ),
            0
        ) AS missing_s
    FROM there AS p
    LEFT JOIN tracked AS t
        ON p.cluster = t.cluster AND p.node = t.node AND p.bucket = t.bucket
    GROUP BY p.cluster, p.node, p.pool, p.gpu_model, p.bucket, p.node_s, p.gpu_count
),

numbered AS (
    SELECT
        *,
        unnest(range(ceil(missing_s / node_s - 1e-6)::BIGINT)) AS k
    FROM missing
    WHERE missing_s > 1
)

SELECT
    -dense_rank() OVER (ORDER BY cluster, node, k) AS device_id,
    cluster,
    node || '/untracked' || k AS device,
    bucket,
    node,
    pool,
    gpu_model AS model,
    least(node_s, missing_s - k * node_s) AS seconds
FROM numbered
