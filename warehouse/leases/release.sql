-- For PostgreSQL: give a lease back at once; the row stays and says who had it.
UPDATE fallow_lease SET expires_at = clock_timestamp()
WHERE name = $name AND holder = $holder AND expires_at > clock_timestamp()
