-- What the ledger of a window reads beside the rows that the accounting step itself writes: one
-- checksum for each table. That an object was seen again after the window does not change it.
SELECT
    'pod' AS name,
    bit_xor(hash(p)) AS checksum
FROM (
    SELECT * REPLACE (least(last_seen, $until) AS last_seen)
    FROM pod
    WHERE
        coalesce(created_at, first_seen) < $until
        AND coalesce(finished_at, last_seen) >= $since
) AS p
UNION ALL BY NAME
SELECT
    'node' AS name,
    bit_xor(hash(n)) AS checksum
FROM (SELECT * REPLACE (least(last_seen, $until) AS last_seen) FROM node) AS n
UNION ALL BY NAME
SELECT
    'era' AS name,
    bit_xor(hash(e)) AS checksum
FROM (
    SELECT * EXCLUDE (last_seen)
    FROM era
    WHERE valid_from < $until
) AS e
UNION ALL BY NAME
SELECT
    'attribute_era' AS name,
    bit_xor(hash(a)) AS checksum
FROM (
    SELECT * EXCLUDE (last_seen)
    FROM attribute_era
    WHERE valid_from < $until
) AS a
UNION ALL BY NAME
SELECT
    'device' AS name,
    bit_xor(hash(d)) AS checksum
FROM (
    SELECT * REPLACE (least(last_seen, $until) AS last_seen)
    FROM device
    WHERE first_seen < $until
) AS d
UNION ALL BY NAME
SELECT
    'event' AS name,
    bit_xor(hash(e)) AS checksum
FROM (
    SELECT *
    FROM event
    WHERE kind = 'Node' AND ts < $until
) AS e
UNION ALL BY NAME
SELECT
    'rate' AS name,
    bit_xor(hash(r)) AS checksum
FROM (SELECT * EXCLUDE (as_of) FROM rate) AS r
ORDER BY name
