"""What people look at: the incident report."""
