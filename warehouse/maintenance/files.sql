-- Rows of every live data file, by the name of the file (which no two share).
SELECT
    kept.table_name,
    regexp_extract(file.path, '[^/]*$') AS name,
    file.record_count
FROM __ducklake_metadata_lake.ducklake_data_file AS file
INNER JOIN __ducklake_metadata_lake.ducklake_table AS kept
    ON file.table_id = kept.table_id AND kept.end_snapshot IS NULL
WHERE file.end_snapshot IS NULL
