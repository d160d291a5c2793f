-- What pods did on their hosts, with what their model servers were asked for: a row per pod and
-- interval. `serves`: a request ended well; `requests_held`: those that run, wait or are swapped
-- out; `is_requested`: either. Null is a server that does not say, never 0: where none runs and the
-- queue is not known, nor is what it holds (`is_load_unknown`); Triton's may know the queue alone.
-- Requests that only fail are none of them. `net_bps` and `fs_bps`: bytes in both directions; files
-- are read or written.
SELECT
    *, -- noqa: AM04
    requests_per_s > 0 AS serves,
    -- Sums of lists are slower.
    CASE
        WHEN coalesce(requests_running, requests_waiting, requests_swapped) IS NOT null
            THEN
                coalesce(requests_running, 0)
                + coalesce(requests_waiting, 0)
                + coalesce(requests_swapped, 0)
    END AS known_held,
    coalesce(known_held = 0 AND requests_waiting IS null, false) AS is_load_unknown,
    CASE WHEN NOT is_load_unknown THEN known_held END AS requests_held,
    coalesce(
        requests_per_s > 0 OR requests_running > 0 OR requests_waiting > 0 OR requests_swapped > 0,
        false
    ) AS is_requested,
    net_rx_bps + net_tx_bps AS net_bps,
    coalesce(fs_read_bps + fs_write_bps, fs_read_bps, fs_write_bps) AS fs_bps
FROM pod_sample
