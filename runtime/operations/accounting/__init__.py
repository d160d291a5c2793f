"""Account hours, prices, budgets and savings, and choose windows."""
