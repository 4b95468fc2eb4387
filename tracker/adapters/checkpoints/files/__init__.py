"""Reading of checkpoint files: listings, safetensors, DCP, raw states."""
