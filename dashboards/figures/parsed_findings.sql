-- The findings of each analyzer's last run that touch the window, their documents parsed once into
-- `body`; `part` of each is in it.
SELECT
    f.id,
    f.analyzer,
    f.kind,
    f.cluster,
    f.namespace,
    f.workload_kind,
    f.workload,
    f.start,
    f."end",
    f.found_at,
    f.verdict,
    f.evidence,
    f.gpu_hours,
    coalesce(p.part, 1) AS part,
    from_json(
        f.document,
        '{
            "subject": {"team": "VARCHAR", "models": ["VARCHAR"]},
            "recommendations": [{
                "verb": "VARCHAR",
                "target": "VARCHAR",
                "saving": "VARCHAR",
                "effort": "VARCHAR",
                "marginal_gpu_hours": "DOUBLE",
                "marginal_usd": "DECIMAL(18, 6)",
                "marginal_idle_gpu_hours": "DOUBLE",
                "marginal_in_use_gpu_hours": "DOUBLE",
                "marginal_in_use_usd": "DECIMAL(18, 6)",
                "at_most_gpu_hours": "DOUBLE",
                "at_most_usd": "DECIMAL(18, 6)"
            }]
        }'
    ) AS body
FROM latest_findings AS f
LEFT JOIN finding_parts AS p ON f.cluster = p.cluster AND f.id = p.id
WHERE f.start < $until::TIMESTAMP AND f."end" > $since::TIMESTAMP
