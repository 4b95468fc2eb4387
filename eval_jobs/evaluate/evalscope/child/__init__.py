"""A separate process that runs EvalScope and sends requests to the server. Only its starter refers to it."""
