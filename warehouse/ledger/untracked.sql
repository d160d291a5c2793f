-- GPUs that a node has by its inventory and nobody looks at: `<node>/untracked<k>`, unknown.
-- A device that is there for all but five minutes counts as there: sources start and end apart.
WITH inventory AS (
    SELECT
        cluster,
        node,
        pool,
        gpu_model,
        gpu_count,
        greatest(first_seen, $since) AS from_at,
        least(last_seen, $until) AS to_at
    FROM node
    WHERE gpu_count > 0 AND first_seen < $until AND last_seen > $since
),

complete AS (
    SELECT
        i.cluster,
        i.node
    FROM inventory AS i
    INNER JOIN spans AS s ON i.cluster = s.cluster AND i.node = s.node
    WHERE s.kind <> 'instance' AND s.from_at <= i.from_at AND s.to_at >= i.to_at
    GROUP BY i.cluster, i.node
    HAVING count(DISTINCT s.device_id) >= max(i.gpu_count)
),

lacking AS (
    SELECT i.* FROM inventory AS i
    ANTI JOIN complete AS c ON i.cluster = c.cluster AND i.node = c.node
),

present AS (
    SELECT
        *,
        unnest(
            generate_series(
                time_bucket(to_seconds($step_s), from_at),
                to_at - INTERVAL 1 MICROSECOND,
                to_seconds($step_s)
            )
        ) AS bucket
    FROM lacking
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
        s.device_id,
        s.cluster,
        s.node
    FROM spans AS s
    INNER JOIN lacking AS k ON s.cluster = k.cluster AND s.node = k.node
    WHERE s.kind <> 'instance'
),

tracked AS (
    SELECT
        s.cluster,
        s.node,
        b.bucket,
        b.device_id,
        sum(
            epoch(least(b.to_at, b.bucket + to_seconds($step_s)))
            - epoch(greatest(b.from_at, b.bucket))
        ) AS device_s
    FROM buckets AS b
    INNER JOIN placed AS s ON b.device_id = s.device_id
    GROUP BY s.cluster, s.node, b.bucket, b.device_id
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
