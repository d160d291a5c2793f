"""Schedule reports; due times are stored over restarts."""
