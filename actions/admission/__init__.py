"""Admission policies that narrow what the actor's account may write to what policies name."""
