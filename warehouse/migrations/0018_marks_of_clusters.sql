-- An hour may wait for one cluster whose rows of it cannot be accounted (null = for all clusters).
ALTER TABLE unposted ADD COLUMN IF NOT EXISTS cluster VARCHAR;
