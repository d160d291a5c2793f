-- The partition values of registered files as their folders have them. DuckLake 1.5 gives all units
-- of a registered file the same index, so that a merge may take two files of one day for two days.
WITH registered AS (
    SELECT data_file_id
    FROM __ducklake_metadata_lake.ducklake_file_partition_value
    GROUP BY data_file_id
    HAVING count(*) > count(DISTINCT partition_key_index)
)

SELECT
    f.data_file_id,
    f.table_id,
    c.partition_key_index,
    regexp_extract(f.path, c.transform || '=(\d+)/', 1) AS partition_value
FROM __ducklake_metadata_lake.ducklake_data_file AS f
INNER JOIN registered AS r ON f.data_file_id = r.data_file_id
INNER JOIN __ducklake_metadata_lake.ducklake_partition_column AS c
    ON f.table_id = c.table_id AND f.partition_id = c.partition_id
ORDER BY ALL
