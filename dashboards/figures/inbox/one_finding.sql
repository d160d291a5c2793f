-- One whole finding.
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
    confidence,
    gpu_hours,
    usd,
    document
FROM finding
WHERE id = $id
