"""Code that runs inside vLLM's processes: `tracker_worker`, a package that does not depend on the rest of the tracker.

vLLM finds it because this folder is on the engine's PYTHONPATH, even if `serve.python` is in another environment.
"""
