"""Loads weights into a running vLLM strictly, and keeps others from its routes for developers.

Standard library, torch and vLLM only, and relative imports: inside vLLM nothing else of ours can be imported.
"""
