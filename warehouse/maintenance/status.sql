-- What each tier holds, from the catalog: no data file of a table is opened.
-- $names, $tiers, $time_columns: for each table its tier and the column that holds its time, or
-- null. $measured: the columns of `sample` that count as values.
WITH noun AS (
    SELECT
        unnest($names) AS name,
        unnest($tiers) AS tier,
        unnest($time_columns) AS time_column
),

data_file AS (
    SELECT
        noun.name,
        noun.tier,
        noun.time_column,
        file.table_id,
        file.data_file_id,
        file.record_count,
        file.file_size_bytes
    FROM __ducklake_metadata_lake.ducklake_data_file AS file
    INNER JOIN __ducklake_metadata_lake.ducklake_table AS live_table
        ON file.table_id = live_table.table_id AND live_table.end_snapshot IS NULL
    INNER JOIN noun ON live_table.table_name = noun.name
    WHERE file.end_snapshot IS NULL
),

deletes AS (
    SELECT
        data_file_id,
        sum(delete_count) AS deleted,
        sum(file_size_bytes) AS bytes,
        count(*) AS files
    FROM __ducklake_metadata_lake.ducklake_delete_file
    WHERE end_snapshot IS NULL
    GROUP BY data_file_id
),

column_stats AS (
    SELECT
        stats.data_file_id,
        named.column_name,
        any_value(stats.value_count) AS value_count,
        any_value(stats.min_value) AS lowest,
        any_value(stats.max_value) AS highest
    FROM __ducklake_metadata_lake.ducklake_file_column_stats AS stats
    INNER JOIN __ducklake_metadata_lake.ducklake_column AS named
        ON stats.table_id = named.table_id AND stats.column_id = named.column_id
    WHERE named.end_snapshot IS NULL AND list_contains($wanted, named.column_name)
    GROUP BY stats.data_file_id, named.column_name
),

measured AS (
    SELECT
        data_file_id,
        sum(value_count) AS samples
    FROM column_stats
    WHERE list_contains($measured, column_name)
    GROUP BY data_file_id
),

stored AS (
    SELECT
        data_file.tier,
        data_file.name AS table_name,
        sum(data_file.record_count - coalesce(deletes.deleted, 0)) AS row_count,
        sum(data_file.file_size_bytes + coalesce(deletes.bytes, 0)) AS bytes,
        sum(1 + coalesce(deletes.files, 0)) AS files,
        min(column_stats.lowest::TIMESTAMP) AS oldest,
        max(column_stats.highest::TIMESTAMP) AS newest,
        CASE
            WHEN data_file.name = 'sample'
                THEN sum(data_file.file_size_bytes) / nullif(sum(measured.samples), 0)
        END AS bytes_per_sample
    FROM data_file
    LEFT JOIN deletes ON data_file.data_file_id = deletes.data_file_id
    LEFT JOIN measured ON data_file.data_file_id = measured.data_file_id
    LEFT JOIN column_stats
        ON
            data_file.data_file_id = column_stats.data_file_id
            AND data_file.time_column = column_stats.column_name
    GROUP BY data_file.tier, data_file.name
),

archived AS (
    SELECT
        'cold' AS tier,
        noun AS table_name,
        sum(row_count) AS row_count,
        sum(bytes) AS bytes,
        count(*) AS files,
        min(day) AS oldest,
        max(day) AS newest,
        NULL::DOUBLE AS bytes_per_sample
    FROM lake.main.cold_file
    GROUP BY noun
)

SELECT
    every.tier,
    every.table_name AS table, -- noqa: RF06
    every.row_count::BIGINT AS rows,
    every.bytes::BIGINT AS bytes,
    every.files::BIGINT AS files,
    every.oldest,
    every.newest,
    round(every.bytes_per_sample, 2) AS bytes_per_sample
FROM (
    SELECT * FROM stored
    UNION ALL
    SELECT * FROM archived
) AS every
ORDER BY list_position(['hot', 'warm', 'cold', 'ledger'], every.tier), every.table_name
