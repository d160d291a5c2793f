-- One, where any file was ever archived, else none: the catalog keeps statistics of each table that
-- had rows.
SELECT count(*) AS tables
FROM __ducklake_metadata_lake.ducklake_table AS t
INNER JOIN __ducklake_metadata_lake.ducklake_table_stats AS s ON t.table_id = s.table_id
WHERE t.table_name = 'cold_file' AND t.end_snapshot IS NULL
