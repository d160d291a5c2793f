-- Advice that only the owner can follow, for an owner's workloads, the largest saving first.
SELECT
    a.id,
    a.analyzer,
    a.kind,
    a.cluster,
    a.workload,
    a.team,
    a.evidence,
    a.verb,
    a.effort,
    a.gpu_hours,
    a.usd,
    f.document
FROM advice AS a
INNER JOIN finding AS f ON a.id = f.id
WHERE
    list_contains($analyzers, a.analyzer)
    AND (list_contains($owners, a.team) OR list_contains($owners, a.namespace))
ORDER BY a.usd DESC NULLS LAST, a.gpu_hours DESC, a.id ASC, a.verb ASC
LIMIT $most
