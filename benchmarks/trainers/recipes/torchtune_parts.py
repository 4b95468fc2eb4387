"""A tokenizer for torchtune from the files of a Hugging Face model."""

from torchtune.modules.transforms.tokenizers import HuggingFaceBaseTokenizer


class Tokenizer(HuggingFaceBaseTokenizer):  # type: ignore[misc]
    """For datasets of whole texts."""

    max_seq_len = 256

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}/tokenizer.json",
            tokenizer_config_json_path=f"{path}/tokenizer_config.json",
            generation_config_path=f"{path}/generation_config.json",
        )
        self.pad_id = 0
