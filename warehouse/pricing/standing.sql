-- The prices of settings that another home stored for a cluster since a time, by GPU model.
SELECT
    gpu_model,
    node_usd_h
FROM rate
WHERE
    source = 'settings' AND cluster = $cluster
    AND coalesce(home, '') NOT IN ('', $home) AND as_of > $since::TIMESTAMP
