"""Demand: profiles of the work that requests GPUs, forecasts, and the head-room for it.

pod ────► profiles; demand by queue and hour ─► forecast, refused where it is no better than naive
pod ────► arrivals within the lead time ──────► newsvendor: head-room worth its price
ledger ─► free hours, reserved hours ─────────► excess head-room; coverage, utilisation, break-even
"""
