-- From the first look at any device to the end of the last, and the newest accounted hour.
SELECT
    (SELECT min(first_seen) FROM device) AS first_look,
    (SELECT max(last_seen) FROM device) AS last_look,
    (SELECT min(bucket) FROM ledger) AS first_hour,
    (SELECT max(bucket) FROM ledger) AS last_hour
