"""One module a command; its `command` is registered under the module's name by being here."""
