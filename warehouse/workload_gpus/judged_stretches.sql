-- The requested stretches: a JSON list, with timestamps in microseconds.
SELECT
    s.span,
    s.cluster,
    s.namespace,
    s.workload_kind,
    s.workload,
    make_timestamp(s.start) AS start_at, -- noqa: RF01
    make_timestamp(s."end") AS end_at -- noqa: RF01
FROM (
    SELECT
        unnest(
            from_json(
                $stretches,
                '[{
                    "span": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                    "workload_kind": "VARCHAR", "workload": "VARCHAR", "start": "BIGINT",
                    "end": "BIGINT"
                }]'
            )
        ) AS s
) AS listed
