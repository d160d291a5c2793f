-- What notebook servers reported. `is_unknown`: none of the kernels is known to be busy, and the
-- state or time of a kernel or terminal is missing. A server without terminals' API has none.
SELECT
    *, -- noqa: AM04
    coalesce(busy_kernels, 0) = 0 AND (
        busy_kernels IS null
        OR (coalesce(kernels, 1) > 0 AND last_kernel_activity IS null)
        OR (coalesce(terminals, 0) > 0 AND last_terminal_activity IS null)
    ) AS is_unknown
FROM notebook_sample
