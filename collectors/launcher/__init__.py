"""Starts the training of one job as one step a node, and starts parts of it again when told."""
