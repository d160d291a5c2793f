"""Provide `rate` rows: rate card, on-premises amortisation, commitments, AWS."""
