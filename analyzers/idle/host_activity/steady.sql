-- Each sample with the two before it: CPU, network or I/O count in two samples in a row.
SELECT
    span,
    ts,
    serves,
    works AND lag(works, 1, false) OVER pods AS works,
    lag(ts, 1, ts) OVER pods AS before_ts,
    lag(ts, 2) OVER pods AS earlier_ts
FROM host_samples
WINDOW pods AS (PARTITION BY piece ORDER BY ts)
