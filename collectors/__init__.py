"""Parsers (pure) and readers for each source, and captures turned into records."""
