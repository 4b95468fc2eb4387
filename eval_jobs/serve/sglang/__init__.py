"""SGLang as a resident engine."""
