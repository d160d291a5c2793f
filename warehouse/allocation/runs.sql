-- A run begins and ends inside its first and last bucket where others were seen there too: the
-- looks that name the pod say for how long.
SELECT
    cluster,
    device,
    namespace,
    pod,
    min(bucket)
    + to_milliseconds(round(1000 * (300 - arg_min(held_s, bucket)))::BIGINT) AS run_start,
    max(bucket) + to_milliseconds(round(1000 * arg_max(held_s, bucket))::BIGINT) AS run_end
FROM islands
WHERE pod <> ''
GROUP BY cluster, device, namespace, pod, island
