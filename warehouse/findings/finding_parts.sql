-- Which part of a finding's hours and savings is in the window, of findings that are not wholly in
-- it. The part that its analyzer judged last has what it was granted; what was stored before it has
-- the rest. Within each the ledger's hours of the finding's claims say when: evenly over time only
-- where it has none.
WITH beyond AS (
    SELECT
        cluster,
        id,
        namespace,
        workload_kind,
        workload,
        start,
        "end",
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
        judged_part AS share
    FROM beyond
    UNION ALL
    SELECT
        cluster,
        id,
        start,
        judged_from AS "end",
        greatest(0, 1 - judged_part) AS share
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
    SELECT
        cluster,
        bucket,
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
),

matches AS (
    SELECT
        c.cluster,
        c.id,
        d.bucket,
        d.gpu_seconds
    FROM claims AS c
    INNER JOIN days AS d
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
        d.bucket,
        d.gpu_seconds
    FROM claims AS c
    INNER JOIN days AS d
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

by_day AS (
    SELECT
        cluster,
        id,
        bucket,
        sum(gpu_seconds) AS gpu_seconds
    FROM matches
    GROUP BY ALL
),

chosen_days AS (
    SELECT
        s.cluster,
        s.id,
        s.start,
        s."end",
        s.share,
        d.gpu_seconds,
        epoch(least(s."end", d.bucket + INTERVAL 1 DAY)) - epoch(greatest(s.start, d.bucket))
            AS day_s,
        greatest(
            0,
            epoch(least(s."end", d.bucket + INTERVAL 1 DAY, $until::TIMESTAMP))
            - epoch(greatest(s.start, d.bucket, $since::TIMESTAMP))
        ) AS chosen_s
    FROM segments AS s
    LEFT JOIN by_day AS d
        ON
            s.cluster = d.cluster
            AND s.id = d.id
            AND s."end" > d.bucket
            AND s.start < d.bucket + INTERVAL 1 DAY
),

parts AS (
    SELECT
        cluster,
        id,
        share,
        coalesce(
            sum(gpu_seconds * chosen_s / day_s) / nullif(sum(gpu_seconds), 0),
            greatest(
                0,
                epoch(least("end", $until::TIMESTAMP)) - epoch(greatest(start, $since::TIMESTAMP))
            ) / greatest(1, epoch("end") - epoch(start))
        ) AS part
    FROM chosen_days
    GROUP BY cluster, id, start, "end", share
)

SELECT
    cluster,
    id,
    sum(share * part) AS part
FROM parts
GROUP BY cluster, id
