-- What pods requested, and how many did: those of the window, or all of a still cluster. `gpus`
-- devices of `gpu_milli` each; only HAMi's cores give a share of several devices.
WITH requests AS (
    SELECT
        p.cluster,
        coalesce(p.cpu_request_milli, 0) AS cpu_milli,
        coalesce(p.gpu_request, 0) AS request,
        CASE
            WHEN p.gpu_core_request_pct > 0 AND p.gpu_core_request_pct < 100
                THEN greatest(1, round(p.gpu_request * 100 / p.gpu_core_request_pct))
            ELSE ceil(coalesce(p.gpu_request, 0))
        END::INTEGER AS gpus,
        CASE
            WHEN p.gpu_resource LIKE '%mig-%' THEN split_part(p.gpu_resource, 'mig-', 2)
        END AS profile,
        coalesce(
            p.labels ->> '$.gpu_spec',
            replace(p.annotations ->> '$."nvidia.com/use-gputype"', ',', '|')
        ) AS models
    FROM pod AS p
    WHERE
        p.cluster IN (SELECT unnest($clusters))
        AND NOT (p.gpu_request IS null AND p.gpu_mem_request_bytes IS NOT null)
        AND (
            p.cluster IN (SELECT unnest($stills))
            OR coalesce(p.created_at, p.scheduled_at, p.started_at, p.first_seen) < $until
            AND coalesce(p.finished_at, p.last_seen) >= $since
        )
)

SELECT
    cluster,
    cpu_milli,
    gpus,
    CASE WHEN gpus > 0 THEN round(1000 * request / gpus) ELSE 0 END::INTEGER AS gpu_milli,
    profile,
    models,
    count(*) AS pods
FROM requests
GROUP BY ALL
ORDER BY ALL
