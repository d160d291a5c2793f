-- The telemetry in steps of five minutes; the query that reads it names the columns.
SELECT * FROM rollup_5m  -- noqa: AM04
