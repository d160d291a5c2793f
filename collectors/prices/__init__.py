"""Prices: rate card, on-premises amortisation, commitments, AWS. Each brings `rate` rows."""
