-- The best evidence per device and pod, clipped to the window. Without an inventory, the pod's uid
-- is a hash of its name: the same hash that the collectors write.
SELECT
    cluster,
    device,
    namespace,
    pod,
    coalesce(uid, left(sha256(concat_ws('/', cluster, namespace, pod)), 32)) AS pod_uid,
    greatest(start_at, $since) AS start_at,
    least(end_at, $until) AS end_at,
    share,
    turn,
    rule
FROM evidence
WHERE greatest(start_at, $since) < least(end_at, $until)
QUALIFY strength = min(strength) OVER (PARTITION BY cluster, device, namespace, pod, uid)
