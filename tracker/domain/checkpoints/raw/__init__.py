"""Raw training states of trainers: their files, the names of their tensors, and how these become weights. Pure."""
