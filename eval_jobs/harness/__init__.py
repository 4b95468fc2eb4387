"""Parsing of lm-evaluation-harness output, without I/O: for own evaluations and for imported results."""
