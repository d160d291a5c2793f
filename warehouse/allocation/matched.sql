-- Telemetry's pod names joined to the inventory's pods. StatefulSets use names again, so a lifetime
-- must overlap the stretch in which the name was seen by at least one bucket, or be the best match.
-- Where lifetimes on several nodes match, only those on the device's own node count, provided that
-- telemetry and inventory use the same node names. Without a lifetime that matches the name alone
-- is evidence, but not that of a pod that had ended: exporters go on with its series.
WITH ended_pods AS (
    SELECT
        cluster,
        namespace,
        pod,
        max(life_end) AS end_at
    FROM lives
    GROUP BY cluster, namespace, pod
    HAVING bool_and(ended)
),

placed AS (
    SELECT *
    FROM named
    WHERE refusal IS null
    QUALIFY here OR NOT bool_or(here) OVER (PARTITION BY cluster, device, namespace, pod, node)
),

best AS (
    SELECT
        cluster,
        device,
        namespace,
        pod,
        first_bucket,
        last_bucket,
        buckets,
        uid,
        life_start,
        life_end
    FROM placed
    QUALIFY
        row_number() OVER (
            PARTITION BY cluster, device, namespace, pod, node
            ORDER BY epoch(until_at) - epoch(from_at) DESC, uid
        ) = 1
        OR (life_start IS NOT null AND until_at >= from_at + INTERVAL 5 MINUTE)
)

SELECT
    cluster,
    device,
    namespace,
    pod,
    min(first_bucket) AS first_bucket,
    max(last_bucket) AS last_bucket,
    sum(buckets) AS buckets,
    uid,
    life_start,
    max(life_end) AS life_end
FROM best
GROUP BY cluster, device, namespace, pod, uid, life_start
UNION ALL BY NAME
SELECT
    s.cluster,
    s.device,
    s.namespace,
    s.pod,
    min(s.first_bucket) AS first_bucket,
    max(s.last_bucket) AS last_bucket,
    sum(s.buckets) AS buckets,
    null AS uid,
    null AS life_start,
    null AS life_end
FROM seen AS s
ANTI JOIN named AS k
    ON
        s.cluster = k.cluster AND s.device = k.device
        AND s.namespace = k.namespace AND s.pod = k.pod
        AND s.node IS NOT DISTINCT FROM k.node
ANTI JOIN ended_pods AS e
    ON
        s.cluster = e.cluster AND s.namespace = e.namespace AND s.pod = e.pod
        AND s.first_bucket >= e.end_at
WHERE s.pod <> ''
GROUP BY s.cluster, s.device, s.namespace, s.pod
