"""The steps of a pass of the watcher."""
