"""The engine: one pure fold over one ordered log, and the drivers around it."""
