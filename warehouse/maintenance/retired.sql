-- Files that no reader needs any more, or only a reader that began before they were replaced.
-- Only the path of a file that is scheduled for removal is known.
SELECT
    path,
    path_is_relative::BOOLEAN AS relative,
    NULL::BIGINT AS bytes
FROM __ducklake_metadata_lake.ducklake_files_scheduled_for_deletion
UNION ALL BY NAME
SELECT
    NULL AS path,
    NULL AS relative,
    file_size_bytes AS bytes
FROM __ducklake_metadata_lake.ducklake_data_file
WHERE end_snapshot IS NOT NULL
UNION ALL BY NAME
SELECT
    NULL AS path,
    NULL AS relative,
    file_size_bytes AS bytes
FROM __ducklake_metadata_lake.ducklake_delete_file
WHERE end_snapshot IS NOT NULL
