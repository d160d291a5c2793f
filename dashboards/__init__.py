"""Dashboards show what the read views hold; they write nothing but approvals."""
