-- Claims that take nothing, with the reason: one row per pod and reason, `device` = one of theirs.
SELECT
    cluster,
    uid,
    min(device) AS device,
    any_value(namespace) AS namespace,
    any_value(pod) AS pod,
    refusal
FROM (
    SELECT
        n.cluster,
        n.uid,
        n.device,
        n.namespace,
        n.pod,
        n.refusal
    FROM named AS n
    ANTI JOIN matched AS m
        ON
            n.cluster = m.cluster AND n.device = m.device
            AND n.namespace = m.namespace AND n.pod = m.pod
    WHERE n.refusal IS NOT null AND NOT n.of_exporter
    UNION ALL BY NAME
    SELECT
        cluster,
        uid,
        device,
        namespace,
        pod,
        refusal
    FROM shared
    QUALIFY bool_and(refusal IS NOT null) OVER (PARTITION BY cluster, device, namespace, pod)
    UNION ALL BY NAME
    SELECT
        d.cluster,
        d.uid,
        d.device,
        l.namespace,
        l.pod,
        d.refusal
    FROM listed AS d
    INNER JOIN lives AS l ON d.cluster = l.cluster AND d.uid = l.uid
    WHERE d.refusal IS NOT null
) AS claims_refused
GROUP BY cluster, uid, refusal
