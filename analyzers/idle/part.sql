-- The requested parts, one row per pod of each: a JSON list, with times in microseconds.
SELECT
    h.member,
    h.cluster,
    h.namespace,
    h.pod,
    make_timestamp(h.start) AS start_at, -- noqa: RF01
    make_timestamp(h."end") AS end_at -- noqa: RF01
FROM (
    SELECT
        unnest(
            from_json(
                $parts,
                '[{
                    "member": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                    "pod": "VARCHAR", "start": "BIGINT", "end": "BIGINT"
                }]'
            )
        ) AS h
) AS listed
