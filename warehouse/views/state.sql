-- In which tier rows are: a row per watermark (path is null) and per archived file.
SELECT
    name,
    moment AS ts,
    NULL AS path
FROM lake.main.watermark
UNION ALL BY NAME
SELECT
    noun AS name,
    NULL AS ts,
    path
FROM lake.main.cold_file
ORDER BY ALL
