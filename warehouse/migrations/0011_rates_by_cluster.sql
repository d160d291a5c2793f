-- Prices of settings are of the clusters of the home that stored them; before, of all clusters.
INSERT INTO rate BY NAME
WITH clusters AS (
    SELECT DISTINCT cluster AS name
    FROM ledger_1d
)

SELECT r.* REPLACE (clusters.name AS cluster) -- noqa: AM04
FROM rate AS r
CROSS JOIN clusters
WHERE r.source = 'settings' AND r.cluster = '';
DELETE FROM rate
WHERE source = 'settings' AND cluster = '';
