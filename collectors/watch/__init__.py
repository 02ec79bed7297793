"""Who watches the watcher: canaries through the engine, and a ping to outside while all is well."""
