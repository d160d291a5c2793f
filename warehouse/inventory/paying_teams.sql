-- Which team pays for each pod from when to when: all of time. Its own team of then, else what pods
-- of its workload had said by then, else its namespace.
WITH own AS (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        p.uid,
        if(e.id IS null, p.team, e.value) AS team,
        e.id IS NOT null AS several,
        coalesce(e.holds_from, '-infinity') AS holds_from,
        coalesce(e.holds_to, 'infinity') AS holds_to,
        greatest(
            e.holds_from, coalesce(p.created_at, p.scheduled_at, p.started_at, p.first_seen)
        ) AS from_at
    FROM pod AS p
    LEFT JOIN value_eras AS e
        ON e.kind = 'pod.team' AND p.cluster = e.cluster AND p.uid = e.id
),

-- Of pods that say different teams at one time the one that was created last counts.
statements AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        coalesce(from_at, '-infinity') AS from_at,
        max(team) AS team
    FROM own
    WHERE workload IS NOT null AND (team IS NOT null OR several)
    GROUP BY ALL
),

changes AS (
    SELECT *
    FROM statements
    WINDOW
        of_workload AS (
            PARTITION BY cluster, namespace, workload_kind, workload ORDER BY from_at
        )
    QUALIFY
        team IS DISTINCT FROM lag(team) OVER of_workload OR lag(from_at) OVER of_workload IS null
),

of_workloads AS (
    SELECT
        *,
        if(lag(from_at) OVER of_workload IS null, '-infinity', from_at) AS holds_from,
        coalesce(lead(from_at) OVER of_workload, 'infinity') AS holds_to
    FROM changes
    WINDOW of_workload AS (
        PARTITION BY cluster, namespace, workload_kind, workload ORDER BY from_at
    )
)

SELECT
    o.cluster,
    o.uid,
    coalesce(o.team, w.team, o.namespace) AS team,
    greatest(o.holds_from, coalesce(w.holds_from, o.holds_from)) AS holds_from,
    least(o.holds_to, coalesce(w.holds_to, o.holds_to)) AS holds_to
FROM own AS o
LEFT JOIN of_workloads AS w
    ON
        o.team IS null
        AND o.cluster = w.cluster AND o.namespace = w.namespace
        AND o.workload_kind = w.workload_kind AND o.workload = w.workload
        AND o.holds_from < w.holds_to AND o.holds_to > w.holds_from
