"""Kernel logs: lines in the forms in which tools print them, into events. Pure."""
