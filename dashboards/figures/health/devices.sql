-- The devices that filters name: telemetry of hours bears no pool and no team.
SELECT DISTINCT
    cluster,
    device,
    node,
    model
FROM paid
