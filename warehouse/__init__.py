"""The warehouse keeps the rows: the only room that speaks SQL to an engine."""
