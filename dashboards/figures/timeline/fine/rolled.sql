-- What telemetry said, by steps of five minutes; its reader names the columns.
SELECT * FROM rollup_5m  -- noqa: AM04
