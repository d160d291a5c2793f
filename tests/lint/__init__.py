"""Rules of the code base that no published linter has."""
