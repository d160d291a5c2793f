"""Reports on their way: who gets which, what came of it, and never the same one twice."""
