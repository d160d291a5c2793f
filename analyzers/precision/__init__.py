"""The same work in smaller number formats: the possible saving, as a range with assumptions."""
