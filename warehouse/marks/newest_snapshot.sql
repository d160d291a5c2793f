-- The warehouse's id, which the lake made with its catalog, and the newest snapshot.
SELECT
    lake_schema.schema_uuid::VARCHAR AS warehouse,
    lake_snapshot.snapshot_id AS snapshot,
    lake_snapshot.snapshot_time::VARCHAR AS at
FROM __ducklake_metadata_lake.ducklake_schema AS lake_schema
CROSS JOIN __ducklake_metadata_lake.ducklake_snapshot AS lake_snapshot
WHERE lake_schema.schema_name = 'main'
ORDER BY lake_snapshot.snapshot_id DESC
LIMIT 1
