"""Work that waits for its data, data that is read again and again, and data kept too dear."""
