"""Share operations of commands, service and pages: collect, analyze, plan, act, report."""
