"""What runs inside vLLM's own processes: `tracker_worker`, a package that needs nothing of ours around it.

vLLM finds it because this folder is on the engine's PYTHONPATH, also where `serve.python` names another environment.
"""
