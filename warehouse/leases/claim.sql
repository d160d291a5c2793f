-- For PostgreSQL: take a lease that is free, expired, ours already, or of a process that ended.
INSERT INTO fallow_lease AS lease (name, holder, facts, renewed_at, expires_at)
VALUES ($name, $holder, $facts, clock_timestamp(), clock_timestamp() + $seconds * INTERVAL '1 s')
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    facts = excluded.facts,
    renewed_at = excluded.renewed_at,
    expires_at = excluded.expires_at
WHERE lease.holder IN (excluded.holder, $ended) OR lease.expires_at < clock_timestamp()
