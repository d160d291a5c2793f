-- The requested idle stretches, one row per pod of each: a JSON list, with times in
-- microseconds.
SELECT
    h.span,
    h.cluster,
    h.namespace,
    h.pod,
    h.pod_uid AS uid,
    make_timestamp(h.start) AS start_at, -- noqa: RF01
    make_timestamp(h."end") AS end_at -- noqa: RF01
FROM (
    SELECT
        unnest(
            from_json(
                $holds,
                '[{
                    "span": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                    "pod": "VARCHAR", "pod_uid": "VARCHAR", "start": "BIGINT", "end": "BIGINT"
                }]'
            )
        ) AS h
) AS listed
