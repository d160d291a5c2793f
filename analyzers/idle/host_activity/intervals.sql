-- When pods were active although their devices were idle, and when that was known: a kernel or
-- terminal ran something, requests were served, or CPU, network or I/O was in use. One row per
-- sample or activity, none merged; a sample is valid for the time since the sample before it.
SELECT
    span,
    CASE WHEN works THEN coalesce(earlier_ts, before_ts) ELSE before_ts END AS from_at,
    ts AS to_at,
    ts AS known_at
FROM steady
WHERE works OR serves
UNION ALL BY NAME
SELECT
    span,
    before_ts AS from_at,
    ts AS to_at,
    ts AS known_at
FROM servers
WHERE busy_kernels > 0
UNION ALL BY NAME
SELECT
    span,
    last_kernel_activity AS from_at,
    last_kernel_activity AS to_at,
    min(ts) AS known_at
FROM servers
WHERE last_kernel_activity > start_at AND last_kernel_activity < end_at
GROUP BY ALL
UNION ALL BY NAME
SELECT
    span,
    last_terminal_activity AS from_at,
    last_terminal_activity AS to_at,
    min(ts) AS known_at
FROM servers
WHERE last_terminal_activity > start_at AND last_terminal_activity < end_at
GROUP BY ALL
