"""Generate files from the code: reference pages, roles, the chart, manifests."""
