-- Incoming rows of pods (`incoming`) with a team that their eras do not have at that time. A team
-- whose label is gone is none (an empty text). The first team of a pod is that of all its time.
WITH named AS (
    SELECT
        i.cluster,
        i.uid AS id,
        i.last_seen AS first_seen,
        i.last_seen,
        p.team AS stored_team,
        CASE
            WHEN
                i.team IS null
                AND list_contains(p.labels ->> '$.*', p.team)
                AND NOT list_contains(i.labels ->> '$.*', p.team)
                AND NOT contains(i.labels, '"fallow.dev/unreadable"')
                THEN ''
            ELSE i.team
        END AS value
    FROM incoming AS i
    LEFT JOIN pod AS p ON i.cluster = p.cluster AND i.uid = p.uid
),

compared AS (
    SELECT
        *,
        min(value) OVER of_pod <> max(value) OVER of_pod AS several
    FROM named
    WHERE last_seen IS NOT null AND value IS NOT null
    WINDOW of_pod AS (PARTITION BY cluster, id)
),

pods_of_eras AS (
    SELECT DISTINCT
        cluster,
        id
    FROM attribute_era
    WHERE kind = 'pod'
)

SELECT c.* EXCLUDE (stored_team, several) -- noqa: AM04
FROM compared AS c
LEFT JOIN pods_of_eras AS k ON c.cluster = k.cluster AND c.id = k.id
LEFT JOIN attribute_era AS e
    ON
        e.kind = 'pod' AND c.cluster = e.cluster AND c.id = e.id
        AND c.last_seen >= e.first_seen
        AND (e.valid_to IS null OR c.last_seen <= e.last_seen)
WHERE
    CASE
        WHEN k.id IS null THEN c.several OR c.value <> c.stored_team
        ELSE c.value IS DISTINCT FROM e.value
    END
ORDER BY ALL
