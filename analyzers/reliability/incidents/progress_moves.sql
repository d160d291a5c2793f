-- When the progress of pods rose.
SELECT
    cluster,
    namespace,
    pod,
    ts AS at
FROM (
    SELECT
        cluster,
        namespace,
        pod,
        ts,
        value,
        lag(value) OVER (PARTITION BY cluster, namespace, pod, metric ORDER BY ts) AS before_value
    FROM progress_sample
    WHERE
        ts >= $since
        AND ts < $until
        AND list_contains($pods, hash(cluster, namespace, pod))
) AS reported
WHERE value > before_value
ORDER BY ALL
