"""A separate process that sends the load and times the responses. Only `client_process` refers to it."""
