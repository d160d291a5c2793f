"""Actions turn findings into what would remove them."""
