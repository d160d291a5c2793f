-- What came of the last run of each plugin.
SELECT
    cluster,
    kind,
    plugin,
    start,
    "end",
    result,
    coalesce(reason, '') AS reason
FROM plugin_run
ORDER BY kind, plugin, cluster
