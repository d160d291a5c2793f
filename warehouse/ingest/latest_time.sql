-- Whether a table of the lake ever had rows, and an upper bound on a column of theirs: the catalog
-- widens its statistics and never narrows them.
SELECT
    r.table_id IS NOT NULL AS has_rows,
    s.max_value::TIMESTAMP AS latest
FROM __ducklake_metadata_lake.ducklake_table AS t
INNER JOIN __ducklake_metadata_lake.ducklake_column AS c ON t.table_id = c.table_id
LEFT JOIN __ducklake_metadata_lake.ducklake_table_stats AS r ON t.table_id = r.table_id
LEFT JOIN __ducklake_metadata_lake.ducklake_table_column_stats AS s
    ON c.table_id = s.table_id AND c.column_id = s.column_id
WHERE
    t.end_snapshot IS NULL
    AND c.end_snapshot IS NULL
    AND t.table_name = $table
    AND c.column_name = $time_column
