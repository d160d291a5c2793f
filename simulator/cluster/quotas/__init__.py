"""Quotas that queue instead of refuse: Kueue cohorts and scheduler-plugins ElasticQuotas.

Core ResourceQuotas are the API server's (`simulator/kube`): they refuse at creation.
"""
