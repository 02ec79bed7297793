"""Training logs of every framework: steps, failures, checkpoints. Pure; tables of line forms."""
