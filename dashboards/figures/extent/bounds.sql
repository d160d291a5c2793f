-- From the first sample of any device to the end of the last, and the newest accounted hour.
SELECT
    (SELECT min(first_seen) FROM device) AS first_sample,
    (SELECT max(last_seen) FROM device) AS last_sample,
    (SELECT min(bucket) FROM ledger_1h) AS first_hour,
    (SELECT max(bucket) FROM ledger_1h) AS last_hour
