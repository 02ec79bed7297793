"""What collective libraries and their watchers write: flight recorder, Inspector, xpu_timer."""
