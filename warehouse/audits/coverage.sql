-- Device samples are valid for no more seconds than their bucket has, and never for less than zero.
-- A bucket has several rows to sum only where two pod names were seen on a device at the same time.
-- These stretches are few: they come from one list, so that the planner knows it.
WITH names_5m AS (
    SELECT
        cluster,
        device,
        namespace,
        pod,
        min(bucket) AS first_at,
        max(bucket) AS last_at
    FROM rollup_5m
    WHERE bucket >= $since AND bucket < $until
    GROUP BY cluster, device, namespace, pod
),

names_1h AS (
    SELECT
        cluster,
        device,
        namespace,
        pod,
        min(bucket) AS first_at,
        max(bucket) AS last_at
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until
    GROUP BY cluster, device, namespace, pod
),

both_5m AS (
    SELECT
        unnest(
            list(DISTINCT struct_pack(
                cluster := a.cluster,
                device := a.device,
                first_at := greatest(a.first_at, b.first_at),
                last_at := least(a.last_at, b.last_at)
            )),
            recursive := true
        )
    FROM names_5m AS a
    INNER JOIN names_5m AS b ON a.cluster = b.cluster AND a.device = b.device
    WHERE
        (a.namespace, a.pod) < (b.namespace, b.pod)
        AND a.first_at <= b.last_at AND b.first_at <= a.last_at
),

both_1h AS (
    SELECT
        unnest(
            list(DISTINCT struct_pack(
                cluster := a.cluster,
                device := a.device,
                first_at := greatest(a.first_at, b.first_at),
                last_at := least(a.last_at, b.last_at)
            )),
            recursive := true
        )
    FROM names_1h AS a
    INNER JOIN names_1h AS b ON a.cluster = b.cluster AND a.device = b.device
    WHERE
        (a.namespace, a.pod) < (b.namespace, b.pod)
        AND a.first_at <= b.last_at AND b.first_at <= a.last_at
),

spoken AS (
    SELECT
        'rollup_5m' AS noun,
        300 AS size_s,
        cluster,
        device,
        bucket,
        covered_s,
        covered_s AS least_s
    FROM rollup_5m
    WHERE bucket >= $since AND bucket < $until AND (covered_s > 300 * 1.001 OR covered_s < 0)
    UNION ALL
    SELECT
        'rollup_1h',
        3600,
        cluster,
        device,
        bucket,
        covered_s,
        covered_s AS least_s
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until AND (covered_s > 3600 * 1.001 OR covered_s < 0)
    UNION ALL
    SELECT
        'rollup_5m',
        300,
        r.cluster,
        r.device,
        r.bucket,
        sum(r.covered_s),
        min(r.covered_s)
    FROM rollup_5m AS r
    SEMI JOIN both_5m AS o
        ON
            r.cluster = o.cluster AND r.device = o.device
            AND r.bucket >= o.first_at AND r.bucket <= o.last_at
    WHERE r.bucket >= $since AND r.bucket < $until
    GROUP BY r.cluster, r.device, r.bucket
    UNION ALL
    SELECT
        'rollup_1h',
        3600,
        r.cluster,
        r.device,
        r.bucket,
        sum(r.covered_s),
        min(r.covered_s)
    FROM rollup_1h AS r
    SEMI JOIN both_1h AS o
        ON
            r.cluster = o.cluster AND r.device = o.device
            AND r.bucket >= o.first_at AND r.bucket <= o.last_at
    WHERE r.bucket >= $since AND r.bucket < $until
    GROUP BY r.cluster, r.device, r.bucket
)

SELECT DISTINCT * FROM spoken
WHERE covered_s > size_s * 1.001 OR least_s < 0
ORDER BY ALL
