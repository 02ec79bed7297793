"""Accounting: what the log says of productive time, failures, recoveries and decisions."""
