-- The amount that pods with a named claim read, and the part of their lifetime with samples.
WITH datasets AS (
    SELECT
        unnest($datasets::BIGINT[]) AS dataset,
        unnest($namespaces::VARCHAR[]) AS namespace,
        unnest($claims::VARCHAR[]) AS claim
),

lives AS (
    SELECT
        a.dataset,
        p.cluster,
        p.namespace,
        p.pod,
        p.workload_kind,
        p.workload,
        greatest(coalesce(p.started_at, p.scheduled_at, p.first_seen), $since::TIMESTAMP) AS begun,
        least(coalesce(p.finished_at, p.deleted_at, p.last_seen), $until::TIMESTAMP) AS ended,
        json_array_length(p.annotations::JSON, '$."fallow.pvcs"') AS claims
    FROM pod AS p
    INNER JOIN datasets AS a
        ON
            p.namespace = a.namespace
            AND list_contains(
                from_json(json_extract(p.annotations::JSON, '$."fallow.pvcs"'), '["VARCHAR"]'),
                a.claim
            )
    WHERE p.annotations IS NOT null
),

-- A repeated name is one reader: its samples are counted once.
mounts AS (
    SELECT
        dataset,
        cluster,
        namespace,
        pod,
        any_value(workload_kind) AS workload_kind,
        any_value(workload) AS workload,
        max(claims) AS claims,
        sum(epoch(ended - begun)) AS lived_s
    FROM lives
    WHERE ended > begun
    GROUP BY ALL
),

seen AS (
    SELECT
        s.cluster,
        s.namespace,
        s.pod,
        sum(s.interval_s) AS seconds,
        sum(s.fs_read_bps * s.interval_s) AS disk,
        sum(s.net_rx_bps * s.interval_s) AS network,
        count(s.fs_read_bps) AS disk_samples,
        count(s.net_rx_bps) AS network_samples
    FROM pod_sample AS s
    SEMI JOIN mounts AS m
        ON s.cluster = m.cluster AND s.namespace = m.namespace AND s.pod = m.pod
    WHERE s.ts >= $since AND s.ts < $until
    GROUP BY ALL
)

SELECT
    m.dataset,
    m.cluster,
    m.workload_kind,
    m.workload,
    count(*) AS pods,
    max(m.claims) AS claims,
    sum(m.lived_s) AS lived_s,
    sum(least(coalesce(s.seconds, 0), m.lived_s)) AS seen_s,
    coalesce(sum(s.disk), 0) AS disk,
    coalesce(sum(s.network), 0) AS network,
    coalesce(bool_and(s.disk_samples > 0 AND s.network_samples > 0), false) AS whole
FROM mounts AS m
LEFT JOIN seen AS s ON m.cluster = s.cluster AND m.namespace = s.namespace AND m.pod = s.pod
GROUP BY ALL
ORDER BY ALL
