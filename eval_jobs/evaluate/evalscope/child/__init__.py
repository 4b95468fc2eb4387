"""A process of its own: drives EvalScope and asks the server. Only its starter names it."""
