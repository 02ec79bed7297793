"""The command line and the wiring: the only place where a port meets its adapter."""
