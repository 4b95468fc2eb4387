"""One use case a module, for commands of people."""
