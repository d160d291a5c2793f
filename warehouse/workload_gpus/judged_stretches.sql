-- The requested stretches by the number of their workload: a JSON list, with timestamps in
-- microseconds.
SELECT
    s.span,
    s.workload_number,
    make_timestamp(s.start) AS start_at, -- noqa: RF01
    make_timestamp(s."end") AS end_at -- noqa: RF01
FROM (
    SELECT
        unnest(
            from_json(
                $stretches,
                '[{
                    "span": "BIGINT", "workload_number": "BIGINT", "start": "BIGINT",
                    "end": "BIGINT"
                }]'
            )
        ) AS s
) AS listed
