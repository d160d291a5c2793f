-- For PostgreSQL: the catalog's tables, each with its primary key; null: it has none.
SELECT
    c.relname::text AS table_name,
    pg_get_constraintdef(k.oid) AS primary_key
FROM pg_catalog.pg_class AS c
LEFT JOIN pg_catalog.pg_constraint AS k ON c.oid = k.conrelid AND k.contype = 'p'
WHERE
    c.relnamespace = 'public'::regnamespace
    AND c.relkind = 'r'
    AND c.relname LIKE 'ducklake\_%'
ORDER BY 1
