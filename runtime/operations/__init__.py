"""What commands, the service and pages have in common: collect, analyze, plan, act, report."""
