"""Who runs where, from a scheduler or a file into the log: sources, listings, the poller."""
