-- A row where a file was ever archived: the catalog keeps statistics of tables that had rows.
SELECT s.table_id
FROM __ducklake_metadata_lake.ducklake_table_stats AS s
INNER JOIN __ducklake_metadata_lake.ducklake_table AS t ON s.table_id = t.table_id
WHERE t.table_name = 'cold_file' AND t.end_snapshot IS NULL
