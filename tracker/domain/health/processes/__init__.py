"""The processes of a training: whose they are, whether they make progress, and which one holds up the others."""
