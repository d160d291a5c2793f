-- Hours in which a device changes hands, starts up or computes what is later lost. They are read in
-- five-minute steps.
WITH edges AS (
    SELECT
        device_id,
        cluster,
        device,
        unnest([start_at, end_at]) AS edge_at
    FROM owners
    UNION ALL BY NAME
    SELECT
        device_id,
        cluster,
        device,
        unnest(
            generate_series(
                time_bucket(INTERVAL 1 HOUR, born),
                born + to_seconds($startup_s),
                INTERVAL 1 HOUR
            )
        ) + INTERVAL 1 SECOND AS edge_at
    FROM owners
    WHERE born + to_seconds($startup_s) > $since
    UNION ALL BY NAME
    SELECT
        o.device_id,
        o.cluster,
        o.device,
        unnest(
            generate_series(
                time_bucket(INTERVAL 1 HOUR, greatest(w.start, $since::TIMESTAMP)),
                least(w."end", $until::TIMESTAMP),
                INTERVAL 1 HOUR
            )
        ) + INTERVAL 1 SECOND AS edge_at
    FROM owners AS o
    INNER JOIN work_lost AS w
        ON
            o.cluster = w.cluster AND o.namespace = w.namespace AND o.pod = w.pod
            AND o.start_at < w."end" AND o.end_at > w.start
    WHERE w.start < $until AND w."end" > $since
)

SELECT DISTINCT
    device_id,
    cluster,
    device,
    time_bucket(INTERVAL 1 HOUR, edge_at) AS hour_at
FROM edges
WHERE
    edge_at <> time_bucket(INTERVAL 1 HOUR, edge_at)
    AND edge_at >= $since - to_seconds($startup_s) - INTERVAL 1 HOUR
    AND edge_at < $until
