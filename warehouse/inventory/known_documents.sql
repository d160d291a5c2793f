-- What is known of a document of pods or nodes (`incoming`: place, cluster, id, last_seen) at their
-- time: before its first observation the first one.
WITH firsts AS (
    SELECT
        cluster,
        id,
        arg_min(value, valid_from) AS value
    FROM attribute_era
    WHERE kind = $kind
    GROUP BY ALL
),

objects AS (
    SELECT
        cluster,
        uid AS id,
        if($kind = 'pod.labels', labels, annotations) AS document
    FROM pod
    WHERE $kind <> 'node.labels'
    UNION ALL BY NAME
    SELECT
        cluster,
        node AS id,
        labels AS document
    FROM node
    WHERE $kind = 'node.labels'
)

SELECT
    i.place,
    coalesce(e.value, f.value, o.document) AS document
FROM incoming AS i
INNER JOIN objects AS o ON i.cluster = o.cluster AND i.id = o.id
LEFT JOIN firsts AS f ON i.cluster = f.cluster AND i.id = f.id
LEFT JOIN attribute_era AS e
    ON
        e.kind = $kind AND i.cluster = e.cluster AND i.id = e.id
        AND i.last_seen >= e.valid_from AND i.last_seen < coalesce(e.valid_to, 'infinity')
