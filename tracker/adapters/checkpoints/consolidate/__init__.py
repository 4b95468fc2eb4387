"""Makes safetensors of sharded or pickled training states."""
