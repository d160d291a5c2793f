CREATE TABLE IF NOT EXISTS schedule (
    name TEXT PRIMARY KEY,
    cron TEXT NOT NULL,
    time_zone TEXT NOT NULL,
    next TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS delivery (
    schedule TEXT NOT NULL,
    due TEXT NOT NULL,
    destination TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'failed', 'unknown')),
    at TEXT NOT NULL,
    since TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    try_at TEXT NOT NULL,
    said TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (schedule, due, destination)
) STRICT;

CREATE INDEX IF NOT EXISTS unsettled ON delivery (state) WHERE state IN ('waiting', 'sending');

CREATE TABLE IF NOT EXISTS report (
    schedule TEXT NOT NULL,
    due TEXT NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    title TEXT NOT NULL,
    summary TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (schedule, due)
) STRICT;
