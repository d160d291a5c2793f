-- The months of `changed_hours`, to be compared when the hours are written. What is noted already
-- and not yet compared stays: it has an earlier snapshot.
SELECT
    h.cluster,
    date_trunc('month', h.hour)::TIMESTAMP AS month,
    bool_and(h.is_waiting) AS is_waiting
FROM changed_hours AS h
ANTI JOIN restatement AS r
    ON
        h.cluster = r.cluster AND date_trunc('month', h.hour) = r.month
        AND r.cause = 'due' AND r.state = 'price' AND r.snapshot IS NOT null
WHERE h.hour < $hour
GROUP BY ALL
