-- Pods that exporters name together with other pods on a device, first and last timestamp.
-- `alone` = the other pods had ended in every sample.
WITH named_pods AS (
    SELECT
        cluster,
        device,
        namespace,
        pod,
        min(ts) AS first_ts,
        max(ts) AS last_ts,
        avg(share) AS share,
        false AS alone
    FROM holding AS h
    ANTI JOIN lingering AS g ON h.cluster = g.cluster AND h.device = g.device
    WHERE ts >= $since AND ts < $until
    GROUP BY ALL
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        namespace,
        pod,
        min(ts) AS first_ts,
        max(ts) AS last_ts,
        avg(share) AS share,
        bool_and(alone) AS alone
    FROM lingering
    WHERE there
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.device,
    s.namespace,
    s.pod,
    s.first_ts,
    s.last_ts + to_milliseconds((1250 * coalesce(d.interval_s, 60))::BIGINT) AS last_ts,
    s.share,
    s.alone
FROM named_pods AS s
LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
