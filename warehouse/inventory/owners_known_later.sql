-- Hours to write again because incoming pods (`incoming`) have an owner or a team that was not
-- known when the hours were written. Other pods of the same workload count too if none of them had
-- a team. Hours without five-minute rollups stay as they are.
WITH newly_known AS (
    SELECT
        b.cluster,
        b.namespace,
        b.pod,
        b.workload_kind,
        b.workload,
        b.team,
        coalesce(b.scheduled_at, b.started_at, b.created_at, b.first_seen) AS start_at
    FROM incoming AS b
    LEFT JOIN pod AS t ON b.cluster = t.cluster AND b.uid = t.uid
    WHERE
        (b.workload_kind IS NOT null AND t.workload_kind IS null)
        OR (b.team IS NOT null AND t.team IS null)
),

workloads AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        max(team) AS team
    FROM newly_known
    WHERE team IS NOT null
    GROUP BY cluster, namespace, workload_kind, workload
),

siblings AS (
    SELECT
        p.cluster,
        p.namespace,
        p.pod,
        w.workload_kind,
        w.workload,
        w.team,
        coalesce(p.scheduled_at, p.started_at, p.created_at, p.first_seen) AS start_at
    FROM pod AS p
    INNER JOIN workloads AS w
        ON
            p.cluster = w.cluster AND p.namespace = w.namespace
            AND p.workload_kind = w.workload_kind AND p.workload = w.workload
    QUALIFY
        count(p.team) OVER (
            PARTITION BY p.cluster, p.namespace, p.workload_kind, p.workload
        ) = 0
),

named AS (
    SELECT * FROM newly_known
    UNION
    SELECT * FROM siblings
),

first_rollup AS (
    SELECT min(r.bucket) AS first_hour
    FROM rollup_5m AS r
),

stretches AS (
    SELECT DISTINCT
        greatest(time_bucket(INTERVAL 1 HOUR, a.start), f.first_hour) AS first_hour,
        a."end" AS end_at
    FROM allocation AS a
    CROSS JOIN first_rollup AS f
    INNER JOIN named AS n
        ON
            a.cluster = n.cluster AND a.namespace = n.namespace AND a.pod = n.pod
            AND a."end" > n.start_at
    WHERE
        a.workload_kind <> coalesce(n.workload_kind, a.workload_kind)
        OR a.workload <> coalesce(n.workload, a.workload)
        OR a.team <> coalesce(n.team, a.team)
),

hours AS (
    SELECT DISTINCT unnest(range(first_hour, end_at, INTERVAL 1 HOUR)) AS bucket
    FROM stretches
)

SELECT bucket FROM hours
EXCEPT
SELECT bucket FROM unposted
WHERE cluster IS null
