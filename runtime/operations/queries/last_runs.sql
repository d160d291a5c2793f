-- The result of each analyzer's last run, and until when it judged; until is null where it failed.
SELECT
    plugin AS analyzer,
    arg_max(result, ts) AS result,
    max("end") AS until
FROM plugin_run
WHERE kind = 'analyzer'
GROUP BY plugin
