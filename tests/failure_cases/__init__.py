"""Failures of jobs, devices and nodes, each beside a near twin that calls for another step."""
