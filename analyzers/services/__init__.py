"""Service levels of inference: attained or missed, and replicas that they do not need."""
