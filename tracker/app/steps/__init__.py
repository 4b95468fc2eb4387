"""The steps of which a pass of the watcher is made."""
