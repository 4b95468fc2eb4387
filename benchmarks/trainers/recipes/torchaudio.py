"""Takes the place of torchaudio, which LLaMA-Factory imports and needs for audio only: PyPI's needs CUDA."""
