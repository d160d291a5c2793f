"""Assemble the application: one pass from rows to findings, command line, service and demo."""
