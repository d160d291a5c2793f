-- The telemetry in steps of an hour; the query that reads it names the columns.
SELECT * FROM rollup_1h  -- noqa: AM04
