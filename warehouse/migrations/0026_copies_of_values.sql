-- Copies of a device's values are no use of its pods: months in which pods were charged for more
-- than they requested are accounted anew.
INSERT INTO restatement BY NAME
SELECT DISTINCT
    d.cluster,
    date_trunc('month', d.bucket)::TIMESTAMP AS month,
    'due' AS cause,
    '' AS state
FROM ledger_1d AS d
SEMI JOIN allocation AS a
    ON
        d.cluster = a.cluster AND a.rule = 'usage'
        AND d.bucket < a."end" AND d.bucket + INTERVAL 1 DAY > a.start
ANTI JOIN restatement AS r
    ON
        d.cluster = r.cluster AND r.cause = 'due'
        AND date_trunc('month', d.bucket)::TIMESTAMP = r.month;
