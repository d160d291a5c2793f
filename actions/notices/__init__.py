"""Notify owners and operators: one digest per channel, quiet hours, and proof of delivery."""
