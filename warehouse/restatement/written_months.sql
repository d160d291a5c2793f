-- The months whose changed prices the ledger has: none of their hours of before waits.
SELECT
    r.month AS start,
    min(r.snapshot) AS snapshot
FROM restatement AS r
ANTI JOIN unposted AS u
    ON r.month <= u.bucket AND r.month + INTERVAL 1 MONTH > u.bucket
WHERE r.cause = 'due' AND r.state = 'price' AND r.snapshot IS NOT null
GROUP BY r.month
ORDER BY r.month
