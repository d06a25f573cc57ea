"""Summaries without a model: pick the sentences that carry the facts."""
