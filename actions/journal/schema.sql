-- The journal (SQLite). Rows are only ever added; triggers refuse every other statement.
CREATE TABLE IF NOT EXISTS entry (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    actor TEXT NOT NULL,
    document TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS entry_kind_key ON entry (kind, key);
CREATE TRIGGER IF NOT EXISTS entry_is_never_changed BEFORE UPDATE ON entry
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
CREATE TRIGGER IF NOT EXISTS entry_is_never_deleted BEFORE DELETE ON entry
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
-- INSERT OR REPLACE fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS entry_is_never_replaced BEFORE INSERT ON entry
WHEN EXISTS (SELECT 1 FROM entry WHERE seq >= NEW.seq)
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
