-- Files of device samples, and of deletions from them, since a snapshot: the first and the last
-- time of their rows. A file without statistics, or one that a compaction wrote, is of any time.
WITH sample_table AS (
    SELECT table_id
    FROM __ducklake_metadata_lake.ducklake_table
    WHERE table_name = 'sample' AND end_snapshot IS NULL
),

time_column AS (
    SELECT
        c.table_id,
        c.column_id
    FROM __ducklake_metadata_lake.ducklake_column AS c
    INNER JOIN sample_table AS t ON c.table_id = t.table_id
    WHERE c.column_name = 'ts' AND c.end_snapshot IS NULL
),

changed AS (
    SELECT
        f.data_file_id,
        f.table_id,
        f.partial_max IS NOT NULL AS is_merged
    FROM __ducklake_metadata_lake.ducklake_data_file AS f
    INNER JOIN sample_table AS t ON f.table_id = t.table_id
    WHERE f.begin_snapshot > $snapshot OR f.partial_max > $snapshot
    UNION ALL BY NAME
    SELECT
        d.data_file_id,
        d.table_id,
        FALSE AS is_merged
    FROM __ducklake_metadata_lake.ducklake_delete_file AS d
    INNER JOIN sample_table AS t ON d.table_id = t.table_id
    WHERE d.begin_snapshot > $snapshot
)

SELECT
    CASE WHEN NOT c.is_merged THEN s.min_value::TIMESTAMP END AS first,
    CASE WHEN NOT c.is_merged THEN s.max_value::TIMESTAMP END AS last
FROM changed AS c
LEFT JOIN time_column AS k ON c.table_id = k.table_id
LEFT JOIN __ducklake_metadata_lake.ducklake_file_column_stats AS s
    ON c.data_file_id = s.data_file_id AND k.column_id = s.column_id
