-- Telemetry's pod names joined to the inventory's pods. StatefulSets use names again, so a lifetime
-- must overlap the stretch in which the name was seen by at least one bucket, or be the best match.
-- Where lifetimes on several nodes match, only those on the device's own node count, provided that
-- telemetry and inventory use the same node names.
WITH placed AS (
    SELECT *
    FROM named
    WHERE refusal IS null
    QUALIFY here OR NOT bool_or(here) OVER (PARTITION BY cluster, device, namespace, pod)
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
            PARTITION BY cluster, device, namespace, pod
            ORDER BY epoch(until_at) - epoch(from_at) DESC, uid
        ) = 1
        OR (life_start IS NOT null AND until_at >= from_at + INTERVAL 5 MINUTE)
)

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
FROM best
UNION ALL
SELECT
    s.cluster,
    s.device,
    s.namespace,
    s.pod,
    s.first_bucket,
    s.last_bucket,
    s.buckets,
    null AS uid,
    null AS life_start,
    null AS life_end
FROM seen AS s
ANTI JOIN named AS k
    ON
        s.cluster = k.cluster AND s.device = k.device
        AND s.namespace = k.namespace AND s.pod = k.pod
WHERE s.pod <> ''
