"""The shape of `base/` for torchtitan, which has Llama only from 6 layers of 256 on."""

from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.protocols.model_spec import ModelSpec

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS = 101, 64, 128, 2, 2


def model_registry(flavor: str) -> ModelSpec:
    """Return the description of the model, like the function of this name in every model of torchtitan."""
    spec = llama3.model_registry("debugmodel")
    spec.flavor = flavor
    spec.model = llama3.Llama3Model.Config(
        dim=DIM,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=DIM, param_init=llama3._EMBEDDING_INIT
        ),
        norm=RMSNorm.Config(normalized_shape=DIM, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCABULARY, param_init=llama3._output_linear_init(DIM)),
        layers=llama3._build_llama3_layers(
            n_layers=LAYERS,
            dim=DIM,
            n_heads=HEADS,
            hidden_dim=HIDDEN,
            rope=ComplexRoPE.Config(dim=DIM // HEADS, max_seq_len=512, theta=10000),
            attn_backend="flex",
        ),
    )
    return spec
