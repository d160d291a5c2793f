-- What the warehouse stores about itself. The other tables come from fallow/tables.csv.
CREATE TABLE watermark (name VARCHAR, moment TIMESTAMP);
CREATE TABLE dirty (cluster VARCHAR, bucket TIMESTAMP);
CREATE TABLE unposted (bucket TIMESTAMP);
CREATE TABLE cold_file (
    noun VARCHAR, day TIMESTAMP, path VARCHAR, row_count BIGINT, bytes BIGINT, sha256 VARCHAR
);
