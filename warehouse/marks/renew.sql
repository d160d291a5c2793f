-- Give a catalog that is a copy an id of its own.
UPDATE __ducklake_metadata_lake.ducklake_schema
SET schema_uuid = uuid()
WHERE schema_name = 'main'
