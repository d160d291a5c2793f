-- Rows of every live data file by the file's name, which is unique.
SELECT
    live_table.table_name,
    regexp_extract(file.path, '[^/]*$') AS name,
    file.record_count
FROM __ducklake_metadata_lake.ducklake_data_file AS file
INNER JOIN __ducklake_metadata_lake.ducklake_table AS live_table
    ON file.table_id = live_table.table_id AND live_table.end_snapshot IS NULL
WHERE file.end_snapshot IS NULL
