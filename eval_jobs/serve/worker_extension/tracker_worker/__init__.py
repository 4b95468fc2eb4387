"""Loads weights into a running vLLM with strict checks, and restricts access to vLLM's developer routes.

Standard library, torch and vLLM only, with relative imports: the rest of the tracker cannot be imported inside vLLM.
"""
