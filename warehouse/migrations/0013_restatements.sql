-- Months of before are accounted by older rules: `fallow warehouse upgrade` does them anew.
CREATE TABLE IF NOT EXISTS restatement (
    cluster VARCHAR,
    month TIMESTAMP,
    cause VARCHAR,
    state VARCHAR
);
INSERT INTO restatement BY NAME
SELECT DISTINCT
    cluster,
    date_trunc('month', bucket)::TIMESTAMP AS month,
    'due' AS cause,
    '' AS state
FROM ledger_1d;
