"""Work that would survive on spot capacity, and what it would cost there."""
