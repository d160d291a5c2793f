-- The data files of each table whose rows are exactly those of a few plain Parquet files, at the
-- newest snapshot; path is null for a table without any file. SQLite runs it. Ten files are opened
-- as fast as the lake finds out which of them a query needs.
-- A table of few rows has a version as well, whatever its files are (path is null where they are
-- not plain): the files that its rows are in, which are never changed and whose numbers are never
-- used again. As long as the version is the same, so are the rows.
WITH latest AS (
    SELECT max(snapshot_id) AS snapshot
    FROM ducklake_snapshot
),

-- Since when a table has its columns: all files since then have them, in the same types.
shape AS (
    SELECT
        table_id,
        max(max(begin_snapshot, coalesce(end_snapshot, 0))) AS since
    FROM ducklake_column
    GROUP BY table_id
),

current_file AS (
    SELECT
        f.table_id,
        f.data_file_id,
        f.path,
        f.record_count,
        f.path_is_relative = 1
        AND f.file_format = 'parquet'
        AND f.encryption_key IS NULL
        AND f.mapping_id IS NULL
        -- A merged file keeps row ids and snapshots of its rows in columns of its own.
        AND f.row_id_start IS NOT NULL
        AND f.partial_max IS NULL
        AND f.begin_snapshot >= shape.since AS plain
    FROM ducklake_data_file AS f
    INNER JOIN shape ON f.table_id = shape.table_id
    WHERE f.end_snapshot IS NULL
),

few AS (
    SELECT table_id
    FROM current_file
    GROUP BY table_id
    HAVING min(plain) = 1 AND count(*) <= 10
),

small AS (
    SELECT
        table_id,
        sum(record_count) AS row_count,
        group_concat(data_file_id) AS files
    FROM current_file
    GROUP BY table_id
    HAVING sum(record_count) <= 100000
),

deleted AS (
    SELECT
        table_id,
        group_concat(delete_file_id) AS files
    FROM ducklake_delete_file
    WHERE end_snapshot IS NULL
    GROUP BY table_id
),

plain_table AS (
    SELECT
        t.table_id,
        f.data_file_id,
        f.path
    FROM ducklake_table AS t
    INNER JOIN shape ON t.table_id = shape.table_id
    LEFT JOIN current_file AS f ON t.table_id = f.table_id
    WHERE
        (
            t.table_id IN (SELECT few.table_id FROM few)
            OR (f.table_id IS NULL AND shape.since = t.begin_snapshot)
        )
        AND t.table_id NOT IN (SELECT deleted.table_id FROM deleted)
)

SELECT
    latest.snapshot,
    t.table_name,
    p.table_id IS NOT NULL AS plain,
    s.path || t.path || p.path AS path,
    small.row_count,
    shape.since || ':' || small.files || ':' || coalesce(deleted.files, '') AS version
FROM latest
CROSS JOIN ducklake_table AS t
INNER JOIN ducklake_schema AS s ON t.schema_id = s.schema_id
INNER JOIN shape ON t.table_id = shape.table_id
LEFT JOIN plain_table AS p ON t.table_id = p.table_id
LEFT JOIN small ON t.table_id = small.table_id
LEFT JOIN deleted ON t.table_id = deleted.table_id
WHERE
    t.end_snapshot IS NULL
    AND s.schema_name = 'main'
    AND s.path_is_relative = 1
    AND t.path_is_relative = 1
    AND (p.table_id IS NOT NULL OR small.table_id IS NOT NULL)
    AND t.table_id NOT IN (SELECT i.table_id FROM ducklake_inlined_data_tables AS i)
ORDER BY t.table_name, p.data_file_id
