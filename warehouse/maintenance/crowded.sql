-- Tables that need a rewrite (a file with a high share of deleted rows) or a merge (several small
-- files in one partition; files with deleted rows are never merged).
WITH partition_of AS (
    SELECT
        data_file_id,
        string_agg(partition_value, '/' ORDER BY partition_key_index) AS place
    FROM __ducklake_metadata_lake.ducklake_file_partition_value
    GROUP BY data_file_id
),

deletes AS (
    SELECT
        data_file_id,
        sum(delete_count) AS deleted
    FROM __ducklake_metadata_lake.ducklake_delete_file
    WHERE end_snapshot IS NULL
    GROUP BY data_file_id
),

lying AS (
    SELECT
        live_table.table_name,
        partition_of.place,
        count(*) FILTER (
            deletes.deleted IS NULL AND file.file_size_bytes < $small
        ) AS small,
        count(*) FILTER (
            deletes.deleted >= $threshold * file.record_count
        ) AS holed
    FROM __ducklake_metadata_lake.ducklake_data_file AS file
    INNER JOIN __ducklake_metadata_lake.ducklake_table AS live_table
        ON file.table_id = live_table.table_id AND live_table.end_snapshot IS NULL
    LEFT JOIN partition_of ON file.data_file_id = partition_of.data_file_id
    LEFT JOIN deletes ON file.data_file_id = deletes.data_file_id
    WHERE file.end_snapshot IS NULL
    GROUP BY live_table.table_name, partition_of.place
)

SELECT
    table_name,
    sum(holed) > 0 AS holed,
    max(small) > 1 AS crowded
FROM lying
GROUP BY table_name
HAVING sum(holed) > 0 OR max(small) > 1
ORDER BY table_name
