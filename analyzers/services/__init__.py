"""Service levels of inference: attained or missed, and replicas that are not needed for them."""
