"""A chat template is rendered once in a process with limits of its own, before an engine starts."""

import json
import subprocess
from pathlib import Path

import pytest

from eval_jobs.errors import TemplateUnbounded
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process import chat_template
from eval_jobs.serve.resident.order import take_order
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import ServeSpec
from tests.evaluating import quiet
from tests.tiny_model import CHAT_TEMPLATE, checkpoint_record, write_checkpoint

ENDLESS = "{% generation %}" + "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3 + "{% endgeneration %}"
LARGE = "{% set x = namespace(t='0123456789') %}{% for _ in range(40) %}{% set x.t = x.t ~ x.t %}{% endfor %}"
TRAINING = "{% for m in messages %}{% generation %}{{ m.content }}{%- endgeneration -%}{% break %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (ENDLESS, "takes too long"),
        (LARGE, "takes too much memory"),
        ("x" * (2 << 20), "is larger than 1 MiB"),
    ],
    ids=["time", "memory", "bytes"],
)
def test_a_template_without_an_end_is_refused_before_an_engine_starts(tmp_path: Path, template: str, why: str) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint-100")
    (folder / "chat_template.jinja").write_text(template)
    engine = VllmEngine(tmp_path / "work", SystemClock())
    with pytest.raises(TemplateUnbounded, match=f"E-SERVE-TEMPLATE: the chat template {why}"):
        engine.serving(checkpoint_record(folder), ServeSpec(), progress=quiet).__enter__()
    assert not list((tmp_path / "work").rglob("*.log"))


def test_a_template_in_the_configuration_of_the_tokenizer_is_refused_too(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": ENDLESS}))
    with pytest.raises(TemplateUnbounded, match="takes too long"):
        chat_template.demand_bounded_template(tmp_path)
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": ENDLESS}]}))
    with pytest.raises(TemplateUnbounded, match="takes too long"):
        chat_template.demand_bounded_template(tmp_path)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, TRAINING, "{{ raise_exception('roles') }}", "{% broken", "\ud800"])
def test_every_other_template_is_left_to_the_engine(tmp_path: Path, template: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    chat_template.demand_bounded_template(tmp_path)


def test_one_template_is_tried_once_for_all_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}, once")
    chat_template.demand_bounded_template(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("tried again"))
    chat_template.demand_bounded_template(tmp_path)


def test_a_template_that_the_settings_replace_is_not_rendered(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint-100")
    (folder / "chat_template.jinja").write_text(ENDLESS)
    order = take_order(checkpoint_record(folder), ServeSpec(args=("--chat_template=plain.jinja",)))
    assert order.tokenizer == str(folder)
