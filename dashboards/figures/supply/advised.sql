-- One analyzer's advice that is not acted upon with all fields, the largest saving first.
SELECT
    a.id,
    a.kind,
    a.cluster,
    a.team,
    a.workload,
    a.evidence,
    a.verb,
    a.effort,
    a.saving,
    a.gpu_hours,
    a.usd,
    f.document
FROM advice AS a
INNER JOIN finding AS f ON a.id = f.id
WHERE list_contains($analyzers, a.analyzer) AND NOT a.is_handled
ORDER BY a.usd DESC NULLS LAST, a.gpu_hours DESC, a.id ASC, a.verb ASC
LIMIT $most
