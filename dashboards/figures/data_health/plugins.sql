-- The result of each plugin's last run.
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
