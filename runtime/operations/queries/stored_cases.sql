-- Cases as analyses stored them last, as far as they overlap a time.
SELECT
    id,
    analyzer,
    kind,
    cluster,
    workload_kind,
    namespace,
    workload,
    uid,
    start,
    "end",
    gpu_hours,
    usd
FROM finding
WHERE
    start < $until::TIMESTAMP
    AND "end" > $since::TIMESTAMP
    AND list_contains($analyzers::VARCHAR[], analyzer)
