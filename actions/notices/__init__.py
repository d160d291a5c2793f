"""Tell owners and operators: one digest per channel, quiet hours, and proof that it arrived."""
