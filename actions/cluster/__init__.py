"""The door to a cluster: read, send what others wrote as data, say what the answer means."""
