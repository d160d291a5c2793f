-- What the pods of its workloads sent and received over the network of their hosts.
WITH each AS (
    SELECT
        time_bucket(INTERVAL 5 MINUTE, s.ts) AS bucket,
        s.namespace,
        s.pod,
        avg(s.net_rx_bps) AS received,
        avg(s.net_tx_bps) AS sent
    FROM pod_sample AS s
    WHERE
        s.cluster = $cluster
        AND s.ts >= $since
        AND s.ts < $until
        AND (s.namespace, s.pod) IN (
            SELECT (p.namespace, p.pod)
            FROM pod_owners AS p
            WHERE
                p.cluster = $cluster
                AND list_contains(
                    $workloads, p.namespace || '/' || p.workload_kind || '/' || p.workload
                )
        )
    GROUP BY ALL
)

SELECT
    bucket,
    sum(received) / 1e6 AS received_mb_s,
    sum(sent) / 1e6 AS sent_mb_s
FROM each
GROUP BY bucket
