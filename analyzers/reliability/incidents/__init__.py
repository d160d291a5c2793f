"""Incidents: one record per failure of a workload or device, with ranked causes and one step."""
