-- Seconds of each cell that each pod held: `time_s` on the clock, `own_s` its share of them,
-- `start_s` of them in startup.
WITH by_bucket AS (
    SELECT
        *,
        unnest(
            generate_series(
                time_bucket(to_seconds($step_s), greatest(start_at, $since)),
                least(end_at, $until) - INTERVAL 1 MICROSECOND,
                to_seconds($step_s)
            )
        ) AS bucket
    FROM owners
)

SELECT
    c.cluster,
    c.device,
    c.bucket,
    c.cell,
    o.namespace,
    o.pod,
    any_value(o.workload_kind) AS workload_kind,
    any_value(o.workload) AS workload,
    any_value(o.team) AS team,
    sum(epoch(least(c.to_at, o.end_at)) - epoch(greatest(c.from_at, o.start_at))) AS time_s,
    sum(
        (epoch(least(c.to_at, o.end_at)) - epoch(greatest(c.from_at, o.start_at))) * o.share
    ) AS own_s,
    sum(
        greatest(
            0,
            epoch(least(c.to_at, o.end_at, s.ready))
            - epoch(greatest(c.from_at, o.start_at, s.born))
        )
    ) FILTER (WHERE s.born IS NOT null) AS start_s
FROM cells AS c
INNER JOIN by_bucket AS o
    ON
        c.cluster = o.cluster AND c.device = o.device AND c.bucket = o.bucket
        AND c.to_at > o.start_at AND c.from_at < o.end_at
LEFT JOIN startups AS s
    ON
        o.cluster = s.cluster AND o.device = s.device
        AND o.namespace = s.namespace AND o.pod = s.pod AND o.born = s.born
WHERE c.kind <> 'unpartitioned'
GROUP BY c.cluster, c.device, c.bucket, c.cell, o.namespace, o.pod
