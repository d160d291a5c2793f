-- Each holder with the device samples that name it. `used` is the part of those samples' seconds
-- that belongs to the holder's own seconds. Where the two differ by at most 0.1 % they are the same
-- stretch (float noise). Where no sample names the holder (not `named`), their seconds are null.
SELECT
    h.device_id,
    h.bucket,
    h.cell,
    h.owner_id,
    h.holder_id,
    h.time_s,
    h.own_s,
    h.start_s,
    l.idle_s,
    l.low_s,
    l.busy_s,
    l.covered_s,
    l.covered_s IS NOT null AS named,
    l.effective,
    CASE
        WHEN l.covered_s <= 0 THEN 0
        WHEN abs(l.covered_s / h.time_s - 1) <= 0.001 THEN h.own_s / l.covered_s
        ELSE least(h.own_s / h.time_s, h.own_s / l.covered_s)
    END AS used
FROM holder_seconds AS h
LEFT JOIN signal_seconds AS l
    ON h.device_id = l.device_id AND h.cell = l.cell AND h.owner_id = l.owner_id
