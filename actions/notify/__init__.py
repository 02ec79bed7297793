"""Telling people: who is told of which incident, over which way, and that it is told once."""
