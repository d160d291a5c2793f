-- Stretches in which a progress series of a pod keeps one value: one row per series and stretch.
-- `moved` = it had another value before. A gap without samples separates two stretches.
WITH reported AS (
    SELECT
        cluster,
        namespace,
        pod,
        metric,
        ts,
        value,
        coalesce(interval_s, 60)::DOUBLE AS interval_s,
        lag(ts) OVER series AS before_at,
        lag(value) OVER series AS before_value
    FROM progress_sample
    WHERE
        ts >= $since AND ts < $until
        AND value IS NOT null
        AND list_contains($pods, hash(cluster, namespace, pod))
    WINDOW series AS (PARTITION BY cluster, namespace, pod, metric ORDER BY ts)
),

parted AS (
    SELECT
        *,
        sum(
            CASE
                WHEN value IS DISTINCT FROM before_value THEN 1
                WHEN epoch(ts) - epoch(before_at) > $most_gap * interval_s THEN 1
                ELSE 0
            END
        )
            OVER (
                PARTITION BY cluster, namespace, pod, metric
                ORDER BY ts
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
            AS stretch,
        count(*) FILTER (WHERE before_at IS NOT null AND value <> before_value)
            OVER (
                PARTITION BY cluster, namespace, pod, metric
                ORDER BY ts
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
            AS moves
    FROM reported
)

SELECT
    cluster,
    namespace,
    pod,
    metric,
    any_value(value) AS value,
    max(interval_s) AS interval_s,
    min(ts) AS start,
    least(max(ts) + to_milliseconds((1000 * max(interval_s))::BIGINT), $until::TIMESTAMP) AS "end",
    max(moves) > 0 AS moved
FROM parted
GROUP BY cluster, namespace, pod, metric, stretch
ORDER BY ALL
