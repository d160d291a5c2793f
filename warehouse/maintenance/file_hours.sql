-- First and last time of the rows of a table's data files, by the file's name.
SELECT
    regexp_extract(file.path, '[^/]*$') AS name,
    stats.min_value AS first,
    stats.max_value AS last
FROM __ducklake_metadata_lake.ducklake_data_file AS file
INNER JOIN __ducklake_metadata_lake.ducklake_table AS live_table
    ON file.table_id = live_table.table_id AND live_table.end_snapshot IS NULL
INNER JOIN __ducklake_metadata_lake.ducklake_column AS col
    ON file.table_id = col.table_id AND col.end_snapshot IS NULL
INNER JOIN __ducklake_metadata_lake.ducklake_file_column_stats AS stats
    ON file.data_file_id = stats.data_file_id AND col.column_id = stats.column_id
WHERE
    live_table.table_name = $table
    AND col.column_name = $time_column
