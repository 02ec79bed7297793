"""Reading a site from one place, without agents: its Prometheus, and its syslog."""
