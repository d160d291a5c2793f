"""What the cluster's own controllers do: for each kind, what should exist beneath an object.

A controller is a function of an object and what it controls already; it answers with a `Plan`.
`loop.py` carries plans out, again and again until nothing changes.
"""
