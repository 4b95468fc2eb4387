"""Our latency probe beside `vllm bench serve`: same server, same load, turn by turn.

    python benchmarks/probe_agreement.py [--rounds 7] [--requests 64] [--checkpoint FOLDER]

Prints one table of medians and, last, `ttft_ratio=... tpot_ratio=...`: ours / theirs in each round, the median over the
rounds. The two must agree within 5 %. Starts a vLLM server of its own, without --checkpoint on a random model of 57 M
parameters: large enough that a token takes longer than handing it over, small enough for two CPU cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

from eval_jobs.host.clock import SystemClock
from eval_jobs.host.cpu_placement import run_first
from eval_jobs.probe.prober import LatencyProber
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Endpoint, Percentiles, ProbeLoad, ServeSpec
from tests.tiny_model import checkpoint_record, write_checkpoint

LOAD = ProbeLoad(requests=64, concurrency=4, input_tokens=64, output_tokens=32)


@dataclass(frozen=True, kw_only=True)
class Medians:
    """Of one measurement, in ms."""

    ttft: float
    tpot: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=LOAD.requests)
    parser.add_argument("--checkpoint", type=Path, help="a Hugging Face model folder with tokenizer.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probe-agreement-") as name:
        work_dir = Path(name)
        folder = args.checkpoint or write_model(work_dir / "checkpoint-1")
        spec = ServeSpec(args=() if args.checkpoint else ("--load-format", "dummy"))
        engine = VllmEngine(work_dir, SystemClock())
        try:
            with engine.serving(checkpoint_record(folder), spec, progress=_say) as endpoint:
                run_first()  # and so do both clients: on few cores each would measure its own wait for a CPU
                compare(endpoint, replace(LOAD, requests=args.requests), rounds=args.rounds, work_dir=work_dir)
        finally:
            engine.close()


def write_model(folder: Path) -> Path:
    """Write a model folder whose weights vLLM makes up by itself."""
    write_checkpoint(folder)
    path = folder / "config.json"
    size = {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 8, "head_dim": 64}
    heads = {"num_attention_heads": 12, "num_key_value_heads": 12}
    path.write_text(json.dumps(json.loads(path.read_text()) | size | heads))
    return folder


def compare(endpoint: Endpoint, load: ProbeLoad, *, rounds: int, work_dir: Path) -> None:
    """Measure in turn and print the table; the order changes every round, so that a drift hits both alike."""
    shim = write_shim(work_dir, endpoint.info.version)
    ours, theirs = [], []
    print(f"{load.requests} requests, {load.concurrency} at a time, {load.input_tokens} in, {load.output_tokens} out")
    print("round   ttft ms: ours  bench  ratio   tpot ms: ours  bench  ratio   load")
    for number in range(rounds):
        # A new seed each round: prompts asked before would be answered from the prefix cache.
        seeded = replace(load, seed=load.seed + number)
        if number % 2:
            theirs.append(bench_serve(endpoint, seeded, shim))
            ours.append(our_probe(endpoint, seeded))
        else:
            ours.append(our_probe(endpoint, seeded))
            theirs.append(bench_serve(endpoint, seeded, shim))
        # Beside the figures, because other work on the machine during a round makes it worthless.
        print(f"{_row(str(number + 1), ours[-1], theirs[-1])} {os.getloadavg()[0]:6.1f}", flush=True)
    ours_median, theirs_median = _median(ours), _median(theirs)
    print(_row("median", ours_median, theirs_median))
    # Within a round, because what the machine does besides changes from one to the next.
    pairs = list(zip(ours, theirs, strict=True))
    ttft_ratio = statistics.median(our.ttft / their.ttft for our, their in pairs)
    tpot_ratio = statistics.median(our.tpot / their.tpot for our, their in pairs)
    print(f"ttft_ratio={ttft_ratio:.3f} tpot_ratio={tpot_ratio:.3f}")


def our_probe(endpoint: Endpoint, load: ProbeLoad) -> Medians:
    result = LatencyProber().probe(endpoint, load)
    if result.failed:
        sys.exit(f"our probe: {result.failed} requests failed: {result.first_error}")
    return Medians(ttft=_p50(result.ttft_ms), tpot=_p50(result.tpot_ms))


def bench_serve(endpoint: Endpoint, load: ProbeLoad, shim: Path) -> Medians:
    """Run `vllm bench serve` with the same load."""
    result = shim / "bench.json"
    options = {
        "--backend": "openai",
        "--endpoint": "/v1/completions",
        "--base-url": endpoint.base_url.removesuffix("/v1"),
        "--model": endpoint.model,
        "--tokenizer": endpoint.tokenizer,
        "--dataset-name": "random",
        "--random-input-len": load.input_tokens,
        "--random-output-len": load.output_tokens,
        "--num-prompts": load.requests,
        "--max-concurrency": load.concurrency,
        "--num-warmups": load.warmup_requests,
        "--seed": load.seed,
        "--temperature": 0,
        "--percentile-metrics": "ttft,tpot",
        "--metric-percentiles": "50",
        "--result-dir": shim,
        "--result-filename": result.name,
    }
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    command += ["--ignore-eos", "--save-result", "--disable-tqdm"]
    command += [str(word) for pair in options.items() for word in pair]
    env = os.environ | {"PYTHONPATH": str(shim), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"vllm bench serve failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    content = json.loads(result.read_text())
    if content["failed"]:
        sys.exit(f"vllm bench serve: {content['failed']} requests failed")
    return Medians(ttft=content["median_ttft_ms"], tpot=content["median_tpot_ms"])


def write_shim(work_dir: Path, version: str) -> Path:
    """Return a folder for PYTHONPATH: vLLM's command line wants a distribution `vllm`; a CPU build has another name."""
    shim = work_dir / "shim"
    shim.mkdir(exist_ok=True)
    if not list(distributions(name="vllm")):
        folder = shim / f"vllm-{version}+cpu.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return shim


# --- private


def _p50(values: Percentiles | None) -> float:
    return values.p50 if values else float("nan")


def _median(values: list[Medians]) -> Medians:
    return Medians(ttft=statistics.median(v.ttft for v in values), tpot=statistics.median(v.tpot for v in values))


def _row(label: str, ours: Medians, theirs: Medians) -> str:
    ttft, tpot = ours.ttft / theirs.ttft, ours.tpot / theirs.tpot
    return (
        f"{label:6} {ours.ttft:14.2f} {theirs.ttft:6.2f} {ttft:6.3f} {ours.tpot:15.2f} {theirs.tpot:6.2f} {tpot:6.3f}"
    )


def _say(note: str) -> None:
    print(note, file=sys.stderr)


if __name__ == "__main__":
    main()
