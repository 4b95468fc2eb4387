"""What would stop or slow a training on this machine: facts, and the findings that follow from them."""
