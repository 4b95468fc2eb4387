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
    """Added when it is started again; `{newest}` is its newest whole checkpoint."""
    clean: str = ""
    """Names of its saves, if it resumes from the newest one only, even half-written: that one is deleted first."""
    output: str = "out"
    """Output folder that `tracker init` gets."""
    versions: tuple[str, ...] = ()
    """Packages whose versions stand in the table."""
    convert: tuple[str, ...] = ()
    """Setting `watch.convert`, where the trainer writes another form."""
    overrides: tuple[str, ...] = ()
    """Requirements that replace what is left out for want of an accelerator."""
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


def _llama_factory(name: str, config: str) -> Setup:
    return Setup(
        name=name,
        environment="llamafactory-0.9.5",
        requirements=("llamafactory==0.9.5", "torch==2.13.0"),
        command=("{bin}/llamafactory-cli", "train", f"{{recipes}}/{config}"),
        resume=("resume_from_checkpoint=true",),
        clean="out/checkpoint-*",
        versions=("llamafactory",),
        variables={"DISABLE_VERSION_CHECK": "1", "PYTHONPATH": str(RECIPES)},
    )


def _torchtune(name: str, recipe: str, config: str, newest: str) -> Setup:
    return Setup(
        name=name,
        environment="torchtune-0.6.1",
        requirements=("torchtune==0.6.1", "torchao==0.15.0", "torch==2.13.0"),
        command=("{bin}/tune", "run", recipe, "--config", f"{{recipes}}/{config}"),
        resume=("resume_from_checkpoint=true", f"checkpointer.{newest}"),
        clean="out/epoch_*",
        variables={"PYTHONPATH": str(RECIPES)},
        versions=("torchtune",),
    )


def _swift(name: str, tuner: str) -> Setup:
    options = {
        "model": "base",
        "model_type": "llama",
        "template": "default",
        "use_hf": "true",
        "tuner_type": tuner,
        "dataset": "chats.jsonl",
        "output_dir": "out",
        "max_steps": "200",
        "save_steps": "40",
        "save_total_limit": "2",
        "logging_steps": "10",
        "per_device_train_batch_size": "8",
        "learning_rate": "1.5e-3",
        "max_length": "256",
        "torch_dtype": "float32",
        "split_dataset_ratio": "0",
    }
    return Setup(
        name=name,
        environment="ms-swift-4.6.0",
        requirements=("ms-swift==4.6.0", "torch==2.13.0"),
        command=("{bin}/swift", "sft", *(part for name in options for part in (f"--{name}", options[name]))),
        resume=("--resume_from_checkpoint", "{newest}"),
        variables={"HF_HUB_OFFLINE": "1"},
        versions=("ms-swift", "transformers"),
    )


def _two_processes(name: str, environment: str, more: tuple[str, ...], **variables: str) -> Setup:
    return Setup(
        name=f"Trainer, {name}",
        environment=environment,
        requirements=(*TRL, *more),
        command=("{bin}/torchrun", "--nproc_per_node", "2", "{recipes}/trl_train.py", "SFT", *_sharded(name)),
        versions=("transformers", "accelerate", *(one.partition("==")[0] for one in more)),
        variables=variables,
    )


def _sharded(name: str) -> tuple[str, ...]:
    kinds = {"FSDP2": "fsdp2", "DeepSpeed ZeRO-2": "zero2"}
    return ("--sharded", kinds[name]) if name in kinds else ()


SETUPS = (
    *map(_trl, ("SFT", "SFT LoRA", "DPO", "GRPO")),
    Setup(
        name="Trainer, report_to=mlflow",
        environment="trl-mlflow",
        requirements=(*TRL, "mlflow-skinny==3.17.2", "sqlalchemy<2.1", "alembic"),
        command=("{python}", "{recipes}/trl_train.py", "SFT", "--report-to", "mlflow"),
        resume=("--resume", "--output-dir", "{folder}/out"),  # absolute, after a relative one
        versions=("transformers",),
        variables={"MLFLOW_TRACKING_URI": "sqlite:///.tracker/mlflow.db"},
        joins=True,
    ),
    _two_processes("DDP", "trl-1.16.0", ()),
    _two_processes("FSDP2", "trl-1.16.0", ()),
    _two_processes("DeepSpeed ZeRO-2", "deepspeed-0.19.8", ("deepspeed==0.19.8",), DS_ACCELERATOR="cpu"),
    Setup(
        name="Lightning",
        environment="lightning-2.6.6",
        requirements=("lightning==2.6.6", "transformers==5.19.0", "torch==2.13.0"),
        command=("{python}", "{recipes}/lightning_train.py"),
        output="out/lightning_logs/version_0/checkpoints",
        convert=("{python}", "{examples}/convert/from_lightning.py", "{source}", "{target}", "base"),
        versions=("lightning",),
    ),
    Setup(
        name="torchtitan",
        environment="torchtitan-0.3.0",
        requirements=("torchtitan==0.3.0", "torch==2.13.0", "triton==3.7.1"),
        overrides=("triton==3.7.1",),
        command=("{bin}/torchrun", "--nproc_per_node", "1", "{recipes}/torchtitan_train.py"),
        resume=(),
        output="out/checkpoint",
        convert=(
            "{python}",
            "{examples}/convert/from_torchtitan.py",
            "{source}",
            "{target}",
            "torchtitan_parts",
            "tiny",
            "base",
        ),
        versions=("torchtitan",),
        variables={"PYTHONPATH": str(RECIPES)},
    ),
    _torchtune(
        "torchtune",
        "full_finetune_single_device",
        "torchtune_full.yaml",
        "checkpoint_files=[epoch_1/model-00001-of-00001.safetensors]",
    ),
    _torchtune(
        "torchtune LoRA",
        "lora_finetune_single_device",
        "torchtune_lora.yaml",
        "adapter_checkpoint=epoch_1/adapter_model.pt",
    ),
    _llama_factory("LLaMA-Factory", "llamafactory_full.yaml"),
    _llama_factory("LLaMA-Factory LoRA", "llamafactory_lora.yaml"),
    _swift("ms-swift", "full"),
    _swift("ms-swift LoRA", "lora"),
)
