-- Every file that the catalog names: its path, from `warehouse.data` or absolute, its size, and
-- whether the newest snapshot reads it.
WITH files AS (
    SELECT
        table_id,
        path,
        path_is_relative,
        file_size_bytes,
        end_snapshot
    FROM __ducklake_metadata_lake.ducklake_data_file
    UNION ALL BY NAME
    SELECT
        table_id,
        path,
        path_is_relative,
        file_size_bytes,
        end_snapshot
    FROM __ducklake_metadata_lake.ducklake_delete_file
),

folders AS (
    SELECT DISTINCT
        lake_table.table_id,
        CASE WHEN lake_table.path_is_relative THEN lake_schema.path ELSE '' END
        || lake_table.path AS path
    FROM __ducklake_metadata_lake.ducklake_table AS lake_table
    INNER JOIN __ducklake_metadata_lake.ducklake_schema AS lake_schema
        ON lake_table.schema_id = lake_schema.schema_id
)

SELECT
    CASE WHEN files.path_is_relative THEN folders.path || files.path ELSE files.path END AS path,
    files.file_size_bytes AS bytes,
    files.end_snapshot IS NULL AS live
FROM files
INNER JOIN folders ON files.table_id = folders.table_id
ORDER BY path
