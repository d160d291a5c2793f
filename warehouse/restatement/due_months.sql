-- The months to account anew; those that have begun, with the lake's snapshot of before.
SELECT
    month AS start,
    CASE WHEN count(snapshot) = count(*) THEN min(snapshot) END AS snapshot
FROM restatement
WHERE cause = 'due'
GROUP BY month
ORDER BY month
