-- What incoming rows of pods (`incoming`) say of a column, where its eras do not have all of it at
-- its time: what they have lies between what they do not have. A team or queue of which no label is
-- there, or whose label is gone, is none (an empty text).
WITH labelled AS (
    SELECT
        i.*,
        p.team AS stored_team,
        p.queue AS stored_queue,
        p.labels AS stored_labels,
        p.annotations AS stored_annotations,
        CASE WHEN NOT contains(i.labels, '"fallow.dev/unreadable"') THEN i.labels ->> '$.*' END
            AS words,
        p.labels ->> '$.*' AS stored_words
    FROM incoming AS i
    LEFT JOIN pod AS p ON i.cluster = p.cluster AND i.uid = p.uid
    WHERE i.last_seen IS NOT null
),

named AS (
    SELECT
        cluster,
        uid AS id,
        last_seen AS first_seen,
        last_seen,
        unnest(
            [
                {
                    'kind': 'pod.team',
                    'stored': if(stored_words IS null, stored_team, coalesce(stored_team, '')),
                    'value': CASE
                        WHEN team IS NOT null OR words IS null THEN team
                        WHEN stored_team IS null OR (
                            list_contains(stored_words, stored_team)
                            AND NOT list_contains(words, stored_team)
                        ) THEN ''
                    END
                },
                {
                    'kind': 'pod.queue',
                    'stored': if(stored_words IS null, stored_queue, coalesce(stored_queue, '')),
                    'value': CASE
                        WHEN queue IS NOT null OR words IS null THEN queue
                        WHEN stored_queue IS null OR (
                            list_contains(stored_words, stored_queue)
                            AND NOT list_contains(words, stored_queue)
                        ) THEN ''
                    END
                },
                { 'kind': 'pod.labels', 'stored': stored_labels, 'value': labels },
                { 'kind': 'pod.annotations', 'stored': stored_annotations, 'value': annotations }
            ],
            recursive := true
        )
    FROM labelled
),

compared AS (
    SELECT
        *,
        min(value) OVER of_value <> max(value) OVER of_value AS several
    FROM named
    WHERE value IS NOT null
    WINDOW of_value AS (PARTITION BY kind, cluster, id)
),

eras AS (
    SELECT
        kind,
        cluster,
        id,
        value,
        first_seen,
        if(valid_to IS null, 'infinity', last_seen) AS until_at
    FROM attribute_era
),

objects_of_eras AS (
    SELECT DISTINCT
        kind,
        cluster,
        id
    FROM attribute_era
)

SELECT c.* EXCLUDE (stored, several) -- noqa: AM04
FROM compared AS c
LEFT JOIN objects_of_eras AS k ON c.kind = k.kind AND c.cluster = k.cluster AND c.id = k.id
LEFT JOIN eras AS e
    ON
        c.kind = e.kind AND c.cluster = e.cluster AND c.id = e.id
        AND c.last_seen >= e.first_seen AND c.last_seen <= e.until_at
QUALIFY
    bool_or(
        CASE
            WHEN k.id IS null THEN c.several OR c.value <> c.stored
            ELSE c.value IS DISTINCT FROM e.value
        END
    ) OVER (PARTITION BY c.kind, c.cluster, c.id)
ORDER BY ALL
