-- Uninterrupted runs of pods whose lifetime the inventory does not know.
SELECT
    m.cluster,
    m.device,
    m.namespace,
    m.pod,
    m.uid,
    m.first_bucket,
    m.last_bucket
FROM matched AS m
ANTI JOIN mixed AS x ON m.cluster = x.cluster AND m.device = x.device
WHERE m.life_start IS null
UNION ALL BY NAME
SELECT
    m.cluster,
    m.device,
    m.namespace,
    m.pod,
    m.uid,
    min(i.bucket) AS first_bucket,
    max(i.bucket) AS last_bucket
FROM matched AS m
INNER JOIN islands AS i
    ON
        m.cluster = i.cluster AND m.device = i.device
        AND m.namespace = i.namespace AND m.pod = i.pod
WHERE m.life_start IS null
GROUP BY m.cluster, m.device, m.namespace, m.pod, m.uid, i.island
