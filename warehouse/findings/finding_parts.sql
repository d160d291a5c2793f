-- Which part of a finding's hours and savings is in the window, of findings that are not wholly in
-- it. The part that its analyzer judged last has what it was granted; what was stored before it has
-- the rest. Within each the ledger's hours of the finding's claims say when; evenly over time where
-- it has none, and in the days and hours in which the finding begins and ends.
WITH beyond AS (
    SELECT
        cluster,
        id,
        namespace,
        workload_kind,
        workload,
        start,
        "end",
        gpu_hours,
        greatest(start, coalesce((document ->> '$.details.case.judged_from')::TIMESTAMP, start))
            AS judged_from,
        coalesce(
            (document ->> '$.details.case.judged_gpu_hours')::DOUBLE / nullif(gpu_hours, 0), 1
        ) AS judged_part,
        list_distinct(
            flatten(
                from_json(
                    document -> '$.recommendations[*].claims',
                    '[[{
                        "namespace": "VARCHAR",
                        "workload_kind": "VARCHAR",
                        "workload": "VARCHAR",
                        "pool": "VARCHAR",
                        "node": "VARCHAR",
                        "model": "VARCHAR",
                        "state": "VARCHAR"
                    }]]'
                )
            )
        ) AS claims
    FROM latest_findings
    WHERE
        start < $until::TIMESTAMP
        AND "end" > $since::TIMESTAMP
        AND (start < $since::TIMESTAMP OR "end" > $until::TIMESTAMP)
),

segments AS (
    SELECT
        cluster,
        id,
        judged_from AS start,
        "end",
        judged_part AS share,
        gpu_hours * judged_part * 3600 / nullif(epoch("end") - epoch(judged_from), 0) AS gpus
    FROM beyond
    UNION ALL
    SELECT
        cluster,
        id,
        start,
        judged_from AS "end",
        greatest(0, 1 - judged_part) AS share,
        gpu_hours * greatest(0, 1 - judged_part) * 3600
        / (epoch(judged_from) - epoch(start)) AS gpus
    FROM beyond
    WHERE judged_from > start
),

claims AS (
    SELECT
        cluster,
        id,
        unnest(
            CASE
                WHEN len(claims) > 0 THEN claims
                ELSE [{
                    'namespace': namespace,
                    'workload_kind': workload_kind,
                    'workload': workload,
                    'pool': NULL,
                    'node': NULL,
                    'model': NULL,
                    'state': 'idle'
                }]
            END
        ) AS claim
    FROM beyond
),

days AS (
    SELECT date_trunc('day', $since::TIMESTAMP) AS day
    WHERE $since::TIMESTAMP > date_trunc('day', $since::TIMESTAMP)
    UNION
    SELECT date_trunc('day', $until::TIMESTAMP) AS day
    WHERE $until::TIMESTAMP > date_trunc('day', $until::TIMESTAMP)
),

-- The ledger's days, but the hours of days in which the window begins or ends.
buckets AS (
    SELECT
        bucket AS start,
        bucket + INTERVAL 1 DAY AS "end",
        cluster,
        namespace,
        workload_kind,
        workload,
        pool,
        node,
        model,
        if(state = 'stranded', 'free', state) AS state,
        gpu_seconds
    FROM ledger_1d
    WHERE
        bucket >= (SELECT date_trunc('day', min(b.start)) FROM beyond AS b)
        AND bucket < (SELECT max(b."end") FROM beyond AS b)
        AND bucket NOT IN (SELECT d.day FROM days AS d)
    UNION ALL
    SELECT
        bucket AS start,
        bucket + INTERVAL 1 HOUR AS "end",
        cluster,
        namespace,
        workload_kind,
        workload,
        pool,
        node,
        model,
        if(state = 'stranded', 'free', state) AS state,
        gpu_seconds
    FROM ledger
    WHERE
        bucket >= date_trunc('day', $since::TIMESTAMP)
        AND bucket < $since::TIMESTAMP + INTERVAL 1 DAY
        AND date_trunc('day', bucket) IN (SELECT d.day FROM days AS d)
        OR bucket >= date_trunc('day', $until::TIMESTAMP)
        AND bucket < $until::TIMESTAMP + INTERVAL 1 DAY
        AND date_trunc('day', bucket) IN (SELECT d.day FROM days AS d)
),

matches AS (
    SELECT
        c.cluster,
        c.id,
        d.start,
        d."end",
        d.gpu_seconds
    FROM claims AS c
    INNER JOIN buckets AS d
        ON
            c.cluster = d.cluster
            AND c.claim.namespace = d.namespace
            AND c.claim.workload_kind = d.workload_kind
            AND c.claim.workload = d.workload
            AND if(c.claim.state = 'stranded', 'free', c.claim.state) = d.state
    WHERE
        coalesce(c.claim.pool = d.pool, TRUE)
        AND coalesce(c.claim.node = d.node, TRUE)
        AND coalesce(c.claim.model = d.model, TRUE)
    UNION ALL
    SELECT
        c.cluster,
        c.id,
        d.start,
        d."end",
        d.gpu_seconds
    FROM claims AS c
    INNER JOIN buckets AS d
        ON
            c.cluster = d.cluster
            AND if(c.claim.state = 'stranded', 'free', c.claim.state) = d.state
    WHERE
        c.claim.workload IS NULL
        AND coalesce(c.claim.namespace = d.namespace, TRUE)
        AND coalesce(c.claim.pool = d.pool, TRUE)
        AND coalesce(c.claim.node = d.node, TRUE)
        AND coalesce(c.claim.model = d.model, TRUE)
),

by_bucket AS (
    SELECT
        cluster,
        id,
        start,
        "end",
        sum(gpu_seconds) AS gpu_seconds
    FROM matches
    GROUP BY ALL
),

crossed AS (
    SELECT
        s.cluster,
        s.id,
        s.start,
        s."end",
        s.share,
        b.start >= $since::TIMESTAMP AND b."end" <= $until::TIMESTAMP AS is_chosen,
        CASE
            WHEN s.start <= b.start AND s."end" >= b."end" THEN b.gpu_seconds
            WHEN b.start IS NOT NULL THEN least(
                b.gpu_seconds,
                s.gpus * (epoch(least(s."end", b."end")) - epoch(greatest(s.start, b.start)))
            )
        END AS gpu_seconds
    FROM segments AS s
    LEFT JOIN by_bucket AS b
        ON s.cluster = b.cluster AND s.id = b.id AND s."end" > b.start AND s.start < b."end"
),

parts AS (
    SELECT
        cluster,
        id,
        share,
        CASE
            WHEN sum(gpu_seconds) > 0
                THEN coalesce(sum(gpu_seconds) FILTER (WHERE is_chosen), 0) / sum(gpu_seconds)
            ELSE greatest(
                0,
                epoch(least("end", $until::TIMESTAMP)) - epoch(greatest(start, $since::TIMESTAMP))
            ) / greatest(1, epoch("end") - epoch(start))
        END AS part
    FROM crossed
    GROUP BY cluster, id, start, "end", share
)

SELECT
    cluster,
    id,
    sum(share * part) AS part
FROM parts
GROUP BY cluster, id
