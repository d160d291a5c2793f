-- First and last buckets of runs on devices where other pods were seen too. The device samples that
-- name the pod show for how many seconds of such a bucket the pod held the device.
WITH shared_devices AS (
    SELECT
        cluster,
        device
    FROM seen
    GROUP BY cluster, device
    HAVING count(DISTINCT concat_ws('/', namespace, pod)) > 1
),

edge_buckets AS (
    SELECT
        r.cluster,
        r.device,
        unnest([r.first_bucket, r.last_bucket]) AS bucket
    FROM runs AS r
    SEMI JOIN shared_devices AS s ON r.cluster = s.cluster AND r.device = s.device
),

edge_rows AS (
    SELECT
        r.cluster,
        r.device,
        r.bucket,
        r.namespace,
        r.pod,
        r.covered_s
    FROM rollup_5m AS r
    SEMI JOIN edge_buckets AS m
        ON r.cluster = m.cluster AND r.device = m.device AND r.bucket = m.bucket
    WHERE r.bucket >= $since AND r.bucket < $until
),

totals AS (
    SELECT
        cluster,
        device,
        bucket,
        sum(covered_s) AS covered_s
    FROM edge_rows
    GROUP BY cluster, device, bucket
    HAVING count(*) > 1
)

SELECT
    l.cluster,
    l.device,
    l.bucket,
    l.namespace,
    l.pod,
    l.covered_s * 300 / greatest(300, t.covered_s) AS held_s
FROM edge_rows AS l
INNER JOIN totals AS t
    ON l.cluster = t.cluster AND l.device = t.device AND l.bucket = t.bucket
