-- The findings of each analyzer's last run that touch the window, their documents parsed once into
-- `body`.
SELECT
    id,
    analyzer,
    kind,
    cluster,
    namespace,
    workload_kind,
    workload,
    start,
    "end",
    found_at,
    verdict,
    evidence,
    gpu_hours,
    from_json(
        document,
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
FROM latest_findings
WHERE start < $until::TIMESTAMP AND "end" > $since::TIMESTAMP
