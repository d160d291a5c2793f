-- The other Prometheus servers whose telemetry a cluster has, the newest first.
SELECT target
FROM scrape
WHERE "cluster" = $cluster AND collector = $collector AND target <> $server
GROUP BY target
ORDER BY max(ts) DESC
