"""What datacentre switches write to syslog."""
