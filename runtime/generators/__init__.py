"""Files that are written from the code: reference pages, roles, the chart, manifests."""
