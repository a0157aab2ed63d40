"""Trigger search in causal language models: the answers of `PlainScorer`, with what a prompt shares read once."""
