-- What telemetry said, by steps of an hour; its reader names the columns.
SELECT * FROM rollup_1h  -- noqa: AM04
