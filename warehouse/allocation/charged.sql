-- Claims as they are charged: per hour, the greater of the request and the measured use
-- (OpenCost's max(request, usage)).
WITH beyond AS (
    SELECT
        c.cluster,
        c.device,
        c.pod_uid,
        c.share,
        u.hour_at,
        round(least(1, u.used), 4) AS used
    FROM claims AS c
    INNER JOIN usage AS u
        ON
            c.cluster = u.cluster AND c.device = u.device
            AND c.namespace = u.namespace AND c.pod = u.pod
    WHERE
        u.used > c.share + 0.01
        AND u.hour_at < c.end_at AND u.hour_at + INTERVAL 1 HOUR > c.start_at
),

by_hour AS (
    SELECT
        c.*,
        unnest(
            generate_series(
                time_bucket(INTERVAL 1 HOUR, c.start_at),
                c.end_at - INTERVAL 1 MICROSECOND,
                INTERVAL 1 HOUR
            )
        ) AS hour_at
    FROM claims AS c
    SEMI JOIN beyond AS b
        ON c.cluster = b.cluster AND c.device = b.device AND c.pod_uid = b.pod_uid
)

SELECT
    c.cluster,
    c.device,
    c.pod_uid,
    c.start_at,
    c.end_at,
    c.namespace,
    c.pod,
    c.workload_kind,
    c.workload,
    c.team,
    c.share,
    c.turn,
    c.attribution,
    c.rule
FROM claims AS c
ANTI JOIN beyond AS b
    ON c.cluster = b.cluster AND c.device = b.device AND c.pod_uid = b.pod_uid
UNION ALL BY NAME
SELECT
    h.cluster,
    h.device,
    h.pod_uid,
    greatest(h.start_at, h.hour_at) AS start_at,
    least(h.end_at, h.hour_at + INTERVAL 1 HOUR) AS end_at,
    h.namespace,
    h.pod,
    h.workload_kind,
    h.workload,
    h.team,
    coalesce(b.used, h.share) AS share,
    h.turn,
    CASE WHEN b.used IS null THEN h.attribution ELSE 'estimated' END AS attribution,
    CASE WHEN b.used IS null THEN h.rule ELSE 'usage' END AS rule
FROM by_hour AS h
LEFT JOIN beyond AS b
    ON
        h.cluster = b.cluster AND h.device = b.device AND h.pod_uid = b.pod_uid
        AND h.share = b.share AND h.hour_at = b.hour_at
