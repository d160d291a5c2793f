-- Five-minute looks: all of them when the ledger's step is five minutes, else the cut hours.
SELECT
    r.cluster,
    r.device,
    r.bucket,
    r.namespace,
    r.pod,
    r.idle_s,
    r.low_s,
    r.busy_s,
    r.conflict_s,
    r.blind_s
FROM rollup_5m AS r
SEMI JOIN cuts AS c
    ON
        r.cluster = c.cluster AND r.device = c.device
        AND time_bucket(INTERVAL 1 HOUR, r.bucket) = c.hour_at
WHERE
    $step_s = 3600
    AND r.bucket >= $since - to_seconds($startup_s) - INTERVAL 5 MINUTE
    AND r.bucket < $until
UNION ALL
SELECT
    cluster,
    device,
    bucket,
    namespace,
    pod,
    idle_s,
    low_s,
    busy_s,
    conflict_s,
    blind_s
FROM rollup_5m
WHERE
    $step_s = 300
    AND bucket >= $since - to_seconds($startup_s) - INTERVAL 5 MINUTE
    AND bucket < $until
