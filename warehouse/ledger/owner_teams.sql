-- Which team paid for each holder when: that of the pod at that time.
SELECT
    o.holder_id,
    o.namespace,
    o.workload_kind,
    o.workload,
    CASE
        WHEN e.holds_to < 'infinity' THEN coalesce(e.value, o.namespace)
        ELSE coalesce(e.value, o.team)
    END AS team,
    greatest(o.start_at, coalesce(e.holds_from, o.start_at)) AS start_at,
    least(o.end_at, coalesce(e.holds_to, o.end_at)) AS end_at
FROM owners AS o
LEFT JOIN value_eras AS e
    ON
        e.kind = 'pod' AND o.cluster = e.cluster AND o.pod_uid = e.id
        AND o.start_at < e.holds_to AND o.end_at > e.holds_from
