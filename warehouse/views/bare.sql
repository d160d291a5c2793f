-- Tables of the lake without any row so far: the catalog keeps statistics of all others.
SELECT t.table_name
FROM __ducklake_metadata_lake.ducklake_table AS t
WHERE
    t.end_snapshot IS NULL
    AND NOT EXISTS (
        SELECT 1
        FROM __ducklake_metadata_lake.ducklake_table_stats AS s
        WHERE s.table_id = t.table_id
    )
ORDER BY t.table_name
