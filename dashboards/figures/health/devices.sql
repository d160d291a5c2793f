-- The devices that match the filters: hourly telemetry has no pool and no team.
SELECT DISTINCT
    cluster,
    device,
    node,
    model
FROM paid
