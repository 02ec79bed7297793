"""Decision: the policy ladder. Executors and notifiers join it here."""
