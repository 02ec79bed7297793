"""Bringing a job back: one table of states, a pure step from one to the next, and its picture."""
