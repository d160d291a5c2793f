"""Simulate quotas that queue instead of refuse: Kueue cohorts and ElasticQuotas.

Core ResourceQuotas are the API server's (`simulator/kube`): they refuse at creation.
"""
