-- The objects that the engine has written since its log was emptied. A large one has several
-- requests.
SELECT DISTINCT request.url
FROM duckdb_logs_parsed('HTTP')
WHERE request.type IN ('PUT', 'POST')
