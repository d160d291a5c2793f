-- Hours in which a device changes hands or starts up: they are read in five-minute steps.
WITH moments AS (
    SELECT
        device_id,
        cluster,
        device,
        unnest([start_at, end_at]) AS moment
    FROM owners
    UNION ALL
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
        ) + INTERVAL 1 SECOND
    FROM owners
    WHERE born + to_seconds($startup_s) > $since
)

SELECT DISTINCT
    device_id,
    cluster,
    device,
    time_bucket(INTERVAL 1 HOUR, moment) AS hour_at
FROM moments
WHERE
    moment <> time_bucket(INTERVAL 1 HOUR, moment)
    AND moment >= $since - to_seconds($startup_s) - INTERVAL 1 HOUR
    AND moment < $until
