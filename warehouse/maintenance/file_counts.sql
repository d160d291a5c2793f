-- How many data files the newest snapshot reads, and how many wait for their removal.
SELECT
    count(*) FILTER (end_snapshot IS NULL) AS live,
    count(*) FILTER (end_snapshot IS NOT NULL)
    + (
        SELECT count(*)
        FROM __ducklake_metadata_lake.ducklake_files_scheduled_for_deletion
    ) AS replaced
FROM __ducklake_metadata_lake.ducklake_data_file
