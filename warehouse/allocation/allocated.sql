-- The result: the window's claims together with the rows that the table already has before and
-- after the window. Stretches that touch each other become one row. Claims that take nothing
-- follow, with their reason as the rule.
WITH rows_outside AS (
    SELECT * REPLACE (least("end", $since) AS "end")
    FROM allocation
    WHERE start < $since AND "end" >= $since
    UNION ALL BY NAME
    SELECT * REPLACE (greatest(start, $until) AS start)
    FROM allocation
    WHERE start <= $until AND "end" > $until
),

pieces AS (
    SELECT
        cluster,
        device,
        pod_uid,
        start,
        "end",
        namespace,
        pod,
        workload_kind,
        workload,
        team,
        share,
        attribution,
        rule,
        false AS fresh
    FROM rows_outside
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        pod_uid,
        start_at AS start,
        end_at AS "end",
        namespace,
        pod,
        workload_kind,
        workload,
        team,
        round(share, 9) AS share,
        attribution,
        rule,
        true AS fresh
    FROM owned
),

marked AS (
    SELECT
        *,
        coalesce(
            start > lag("end") OVER (
                PARTITION BY cluster, device, pod_uid, team, share, attribution, rule
                ORDER BY start, "end"
            ), true
        ) AS begins
    FROM pieces
),

numbered AS (
    SELECT
        *,
        sum(begins::INTEGER) OVER (
            PARTITION BY cluster, device, pod_uid, team, share, attribution, rule
            ORDER BY start, "end"
        ) AS stretch
    FROM marked
)

SELECT
    cluster,
    device,
    pod_uid,
    min(start) AS start,
    max("end") AS "end",
    arg_max(namespace, fresh) AS namespace,
    arg_max(pod, fresh) AS pod,
    arg_max(workload_kind, fresh) AS workload_kind,
    arg_max(workload, fresh) AS workload,
    team,
    share,
    attribution,
    rule
FROM numbered
GROUP BY cluster, device, pod_uid, team, share, attribution, rule, stretch
UNION ALL BY NAME
SELECT
    cluster,
    device,
    uid AS pod_uid,
    $until AS start,
    $until AS "end",
    namespace,
    pod,
    null AS workload_kind,
    null AS workload,
    null AS team,
    0 AS share,
    'refused' AS attribution,
    refusal AS rule
FROM refused
