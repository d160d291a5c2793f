-- For PostgreSQL: leases whose name begins with this, by the clock of the database.
SELECT
    name,
    holder,
    facts,
    renewed_at,
    expires_at > clock_timestamp() AS valid,
    extract(EPOCH FROM clock_timestamp() - renewed_at)::FLOAT8 AS age_s
FROM fallow_lease
WHERE starts_with(name, $prefix)
ORDER BY name
