-- Queues that many namespaces share: those of schedulers whose queues have no namespace.
SELECT DISTINCT
    cluster,
    name
FROM quota
WHERE kind IN ('Queue.volcano', 'Queue.kai')
ORDER BY ALL
