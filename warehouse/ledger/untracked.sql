-- GPUs that a node has by its inventory and that have no telemetry: `<node>/untracked<k>`, unknown.
-- Their model is that of the node's devices where telemetry named it, because labels can be
-- coarser. Where a node's lifetime begins or ends, a device that exists for all but five minutes of
-- the bucket counts as present throughout: the sources start and end at different times. Nothing is
-- known about the time before a cluster's first sample.
-- A count that no node has (`views.tiers.MOST_GPUS`) is damage, and as many rows have no end.
-- GPUs that the kubelet cannot allocate (allocatable below the node's count) are unavailable.
-- Devices on a node that the inventory does not have (an exporter's address that could not be
-- resolved) belong to a node without named telemetry: to count both would count them twice.
WITH heard AS (
    SELECT DISTINCT
        cluster,
        node
    FROM device
),

lifetimes AS (
    SELECT
        n.cluster,
        n.node,
        coalesce(m.gpu_model, n.gpu_model) AS gpu_model,
        CASE
            WHEN n.gpu_count > 65536 THEN error(concat(n.node, ' has ', n.gpu_count, ' GPUs'))
            ELSE n.gpu_count
        END AS gpu_count,
        greatest(0, n.gpu_count - coalesce(n.gpu_allocatable, n.gpu_count)) AS lost_count,
        h.node IS null AS silent,
        greatest(n.from_at, coalesce(b.begun_at, n.from_at)) AS first_seen,
        n.to_at AS last_seen
    FROM node_eras AS n
    LEFT JOIN node_models AS m
        ON n.cluster = m.cluster AND n.node = m.node AND n.holds_to = m.holds_to
    LEFT JOIN heard AS h ON n.cluster = h.cluster AND n.node = h.node
    LEFT JOIN begun AS b ON n.cluster = b.cluster
    WHERE n.gpu_count > 0
),

inventory AS (
    SELECT
        *,
        greatest(first_seen, $since) AS from_at,
        least(last_seen, $until) AS to_at
    FROM lifetimes
    WHERE first_seen < $until AND last_seen > $since AND first_seen < last_seen
),

complete AS (
    SELECT
        i.cluster,
        i.node,
        i.from_at
    FROM inventory AS i
    INNER JOIN spans AS s ON i.cluster = s.cluster AND i.node = s.node
    WHERE s.kind <> 'instance' AND s.from_at <= i.from_at AND s.to_at >= i.to_at
    GROUP BY i.cluster, i.node, i.from_at
    HAVING count(DISTINCT s.device_id) >= max(i.gpu_count)
),

lacking AS (
    SELECT i.* FROM inventory AS i
    ANTI JOIN complete AS c
        ON i.cluster = c.cluster AND i.node = c.node AND i.from_at = c.from_at
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
        *,
        CASE
            WHEN
                first_seen > bucket - INTERVAL 5 MINUTE
                OR last_seen < bucket + to_seconds($step_s) + INTERVAL 5 MINUTE
                THEN 300
            ELSE 0
        END AS tolerance_s,
        epoch(least(to_at, bucket + to_seconds($step_s))) - epoch(greatest(from_at, bucket))
            AS node_s
    FROM present
),

placed AS (
    SELECT DISTINCT
        s.device_id,
        s.cluster,
        s.node,
        k.from_at,
        k.to_at
    FROM spans AS s
    INNER JOIN lacking AS k ON s.cluster = k.cluster AND s.node = k.node
    WHERE s.kind <> 'instance'
),

tracked AS (
    SELECT
        s.cluster,
        s.node,
        s.from_at,
        b.bucket,
        b.device_id,
        sum(
            epoch(least(b.to_at, b.bucket + to_seconds($step_s), s.to_at))
            - epoch(greatest(b.from_at, b.bucket, s.from_at))
        ) AS device_s
    FROM buckets AS b
    INNER JOIN placed AS s
        ON
            b.device_id = s.device_id AND b.node = s.node
            AND least(b.to_at, b.bucket + to_seconds($step_s)) > s.from_at
            AND greatest(b.from_at, b.bucket) < s.to_at
    GROUP BY s.cluster, s.node, s.from_at, b.bucket, b.device_id
),

unattributed AS (
    SELECT DISTINCT
        s.device_id,
        s.cluster
    FROM spans AS s
    SEMI JOIN lacking AS k ON s.cluster = k.cluster AND k.silent
    ANTI JOIN node AS n ON s.cluster = n.cluster AND s.node = n.node
    WHERE s.kind <> 'instance'
),

elsewhere AS (
    SELECT
        s.cluster,
        b.bucket,
        sum(
            epoch(least(b.to_at, b.bucket + to_seconds($step_s)))
            - epoch(greatest(b.from_at, b.bucket))
        ) AS device_s
    FROM buckets AS b
    INNER JOIN unattributed AS s ON b.device_id = s.device_id
    GROUP BY s.cluster, b.bucket
),

by_node AS (
    SELECT
        p.cluster,
        p.node,
        p.from_at,
        p.gpu_model,
        p.silent,
        p.lost_count,
        p.bucket,
        p.node_s,
        p.node_s * p.gpu_count - coalesce(
            sum(
                CASE
                    WHEN t.device_s >= p.node_s - p.tolerance_s THEN p.node_s
                    ELSE t.device_s
                END
            ),
            0
        ) AS missing_s
    FROM there AS p
    LEFT JOIN tracked AS t
        ON
            p.cluster = t.cluster AND p.node = t.node AND p.from_at = t.from_at
            AND p.bucket = t.bucket
    GROUP BY
        p.cluster, p.node, p.from_at, p.gpu_model, p.silent, p.lost_count, p.bucket, p.node_s,
        p.gpu_count
),

stacked AS (
    SELECT
        m.*,
        coalesce(e.device_s, 0) AS device_s,
        coalesce(
            sum(CASE WHEN m.silent THEN m.missing_s ELSE 0 END) OVER (
                PARTITION BY m.cluster, m.bucket
                ORDER BY m.node, m.from_at
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS before_s
    FROM by_node AS m
    LEFT JOIN elsewhere AS e ON m.cluster = e.cluster AND m.bucket = e.bucket
),

missing AS (
    SELECT
        * EXCLUDE (missing_s),
        CASE
            WHEN silent THEN missing_s - greatest(0, least(missing_s, device_s - before_s))
            ELSE missing_s
        END AS missing_s
    FROM stacked
),

numbered AS (
    SELECT
        *,
        unnest(range(ceil(missing_s / node_s - 1e-6)::BIGINT)) AS k
    FROM missing
    WHERE missing_s > 1
),

-- A bucket in which an era ends has one row: that of the longer part.
whole AS (
    SELECT
        cluster,
        node,
        k,
        bucket,
        arg_max(gpu_model, node_s) AS model,
        arg_max(k < lost_count, node_s) AS unavailable,
        sum(least(node_s, missing_s - k * node_s)) AS seconds
    FROM numbered
    GROUP BY cluster, node, k, bucket
)

SELECT
    -dense_rank() OVER (ORDER BY cluster, node, k, model) AS device_id,
    cluster,
    node || '/untracked' || k AS device,
    bucket,
    node,
    model,
    unavailable,
    seconds
FROM whole
