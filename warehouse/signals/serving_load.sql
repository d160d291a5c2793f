-- What pods did on their hosts, with what their model servers were asked for: a row per pod and
-- interval. `serves`: a request ended well; `requests_held`: those that run, wait or are swapped
-- out; `is_requested`: either. Null is a server that does not say, never 0. Requests that only fail
-- are none of them.
SELECT
    *, -- noqa: AM04
    requests_per_s > 0 AS serves,
    list_sum([requests_running, requests_waiting, requests_swapped]) AS requests_held,
    coalesce(requests_per_s > 0, false)
    OR coalesce(list_sum([requests_running, requests_waiting, requests_swapped]) > 0, false)
        AS is_requested
FROM pod_sample
