-- Where rows lie: a row per watermark (path is null) and per archived file.
SELECT
    name,
    moment,
    NULL AS path
FROM lake.main.watermark
UNION ALL
SELECT
    noun AS name,
    NULL AS moment,
    path
FROM lake.main.cold_file
ORDER BY ALL
