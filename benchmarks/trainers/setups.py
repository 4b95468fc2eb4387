"""The trainers: what their environments hold, and how each is started and resumed."""

from dataclasses import dataclass, field
from pathlib import Path

RECIPES = Path(__file__).parent / "recipes"
HUGGING_FACE = ("transformers==5.19.0", "accelerate==1.15.0", "datasets==5.2.0", "torch==2.13.0")
TRL = ("trl==1.16.0", "peft==0.21.2", *HUGGING_FACE)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One trainer in one way of use."""

    name: str
    environment: str
    requirements: tuple[str, ...]
    command: tuple[str, ...]
    """Runs in the folder with the material; `{python}`, `{bin}` and `{recipes}` are replaced."""
    resume: tuple[str, ...] = ("--resume",)
    """Added when it is started again."""
    clean: str = ""
    """Names of its saves, if it resumes from the newest one only, even half-written: that one is deleted first."""
    output: str = "out"
    """Output folder that `tracker init` gets."""
    versions: tuple[str, ...] = ()
    """Packages whose versions stand in the table."""
    convert: tuple[str, ...] = ()
    """Setting `watch.convert`, where the trainer writes another form."""
    variables: dict[str, str] = field(default_factory=dict)
    joins: bool = False
    """Whether the trainer writes into the tracker's MLflow store itself."""


def _trl(kind: str) -> Setup:
    return Setup(
        name=f"TRL {kind}",
        environment="trl-1.16.0",
        requirements=TRL,
        command=("{python}", "{recipes}/trl_train.py", kind),
        versions=("trl", "transformers"),
    )


SETUPS = (
    *map(_trl, ("SFT", "SFT LoRA", "DPO", "GRPO")),
    Setup(
        name="Trainer, report_to=mlflow",
        environment="trl-mlflow",
        requirements=(*TRL, "mlflow-skinny==3.17.2", "sqlalchemy<2.1", "alembic"),
        command=("{python}", "{recipes}/trl_train.py", "SFT", "--report-to", "mlflow"),
        versions=("transformers",),
        variables={"MLFLOW_TRACKING_URI": "sqlite:///.tracker/mlflow.db"},
        joins=True,
    ),
    Setup(
        name="Trainer, DDP",
        environment="trl-1.16.0",
        requirements=TRL,
        command=("{bin}/torchrun", "--nproc_per_node", "2", "{recipes}/trl_train.py", "SFT"),
        versions=("transformers", "accelerate"),
    ),
    Setup(
        name="Lightning",
        environment="lightning-2.6.6",
        requirements=("lightning==2.6.6", "transformers==5.19.0", "torch==2.13.0"),
        command=("{python}", "{recipes}/lightning_train.py"),
        output="out/lightning_logs/version_0/checkpoints",
        convert=("{python}", "{examples}/convert/lightning.py", "{source}", "{target}", "base"),
        versions=("lightning",),
    ),
    Setup(
        name="torchtune",
        environment="torchtune-0.6.1",
        requirements=("torchtune==0.6.1", "torchao==0.15.0", "torch==2.13.0"),
        command=("{bin}/tune", "run", "full_finetune_single_device", "--config", "{recipes}/torchtune_full.yaml"),
        resume=(
            "resume_from_checkpoint=true",
            "checkpointer.checkpoint_files=[epoch_1/model-00001-of-00001.safetensors]",
        ),
        clean="out/epoch_*",
        variables={"PYTHONPATH": str(RECIPES)},
        versions=("torchtune",),
    ),
    Setup(
        name="LLaMA-Factory",
        environment="llamafactory-0.9.5",
        requirements=("llamafactory==0.9.5", "torch==2.13.0"),
        command=("{bin}/llamafactory-cli", "train", "{recipes}/llamafactory_full.yaml"),
        resume=("resume_from_checkpoint=true",),
        clean="out/checkpoint-*",
        versions=("llamafactory",),
        variables={"DISABLE_VERSION_CHECK": "1", "PYTHONPATH": str(RECIPES)},
    ),
    Setup(
        name="LLaMA-Factory LoRA",
        environment="llamafactory-0.9.5",
        requirements=("llamafactory==0.9.5", "torch==2.13.0"),
        command=("{bin}/llamafactory-cli", "train", "{recipes}/llamafactory_lora.yaml"),
        resume=("resume_from_checkpoint=true",),
        clean="out/checkpoint-*",
        versions=("llamafactory",),
        variables={"DISABLE_VERSION_CHECK": "1", "PYTHONPATH": str(RECIPES)},
    ),
)
