"""Other people's versions, each in an environment of its own."""
