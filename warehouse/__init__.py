"""Store the rows and answer queries: the only package that sends SQL to an engine."""
