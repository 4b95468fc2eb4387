"""What others write and answer: read up to a limit and a deadline, parsed, and kept only if it is possible."""
