-- For PostgreSQL: leases lie beside the lake's catalog, because a renewal every ten seconds must
-- not make a snapshot of the lake.
CREATE TABLE IF NOT EXISTS fallow_lease (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    facts TEXT NOT NULL,
    renewed_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
)
