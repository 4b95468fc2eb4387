"""Which processes belong to a training: launchers, ranks, data loaders, and what only mentions the folder."""

import re
from dataclasses import replace

import pytest

from tests.recorded_jobs import processes
from tracker.domain.health.processes.jobs import Job, Places, job_of, labels_of
from tracker.domain.health.processes.seen import ProcessId, SeenProcess

OUT = "/data/runs/sft"
PLACES = Places(run="sft", folder=OUT)


def process(
    pid: int, command: str, *, parent: int = 1, name: str = "python", env: str = "", outputs: tuple[str, ...] = ()
) -> SeenProcess:
    return SeenProcess(
        id=ProcessId(pid=pid, created_s=1000.0 + pid),
        parent=parent,
        name=name,
        arguments=tuple(command.split()),
        folder="/data",
        variables=dict(entry.split("=", 1) for entry in env.split()),
        outputs=outputs,
    )


def ranks_of(job: Job) -> dict[int, int]:
    return {rank: one.id.pid for rank, one in job.ranks.items()}


@pytest.mark.parametrize(
    "trainer",
    [
        process(7, f"python train.py --output_dir {OUT}"),
        process(7, f"python train.py --output_dir={OUT}/"),
        process(7, "python train.py --out runs/sft"),
        process(7, "python train.py --out ./runs/../runs/sft"),
        process(7, "python train.py /data/runs"),
        process(7, "python train.py", outputs=(f"{OUT}/train.log",)),
        replace(process(7, "python train.py"), writes=(f"{OUT}/runs/events.out.tfevents.1",)),
        replace(process(7, "python train.py --lr 1e-4"), script=("runs/dpo", "runs/sft")),
        process(7, "python train.py", env="TRACKER_RUN=sft"),
        SeenProcess(
            id=ProcessId(pid=7, created_s=1.0), parent=1, name="x", arguments=("llamafactory",), settings=(OUT,)
        ),
    ],
)
def test_a_process_is_found_by_what_names_the_output_folder(trainer: SeenProcess) -> None:
    assert ranks_of(job_of([process(1, "init"), trainer], PLACES)) == {0: 7}


@pytest.mark.parametrize(
    "other",
    [
        process(7, f"vim {OUT}/train.log", name="vim"),
        process(7, f"bash -c python_train.py_{OUT}", name="bash"),
        process(7, f"tail -f {OUT}", name="tail"),
        replace(process(7, "python train.py --output_dir runs/dpo"), script=("runs/sft",)),
        replace(process(7, "python train.py"), script=("runs/sft",), settings=("/data/elsewhere",)),
        replace(process(7, "python train.py"), script=("runs", "runs/dpo")),
        process(7, f"python -m vllm.entrypoints.openai.api_server --model {OUT}"),
        process(7, f"/venv/bin/python /venv/bin/tracker watch --output {OUT}"),
        process(7, f"python -m eval_jobs.execute.worker.main {OUT}"),
        process(7, "python train.py --output_dir /data/runs/sft2"),
        process(7, "python train.py --data /data"),
        process(7, "python train.py", env="TRACKER_RUN=another"),
        process(7, f"python -m sglang.launch_server --model-path {OUT}"),
        process(7, f"/venv/bin/python /venv/bin/lm_eval --model_args {OUT}"),
        process(7, f"streamlit run view.py {OUT}", name="streamlit"),
        process(7, f"python /opt/llama.cpp/convert_hf_to_gguf.py {OUT}"),
        process(7, f"llama-quantize {OUT}", name="llama-quantize"),
        process(7, f"python merge_lora.py {OUT}"),
        process(7, "node server.js --dir=/data/runs", name="node"),
        process(7, "python -m http.server --directory . .. ''"),
        process(7, "python watch.py --runs=", env="SLURM_JOB_ID=7 SLURM_PROCID=0"),
    ],
)
def test_what_only_mentions_the_folder_or_trains_elsewhere_is_none(other: SeenProcess) -> None:
    assert job_of([other], PLACES) == Job()


def test_ranks_their_launcher_and_the_workers_of_their_loaders_are_told_apart() -> None:
    env = "MASTER_ADDR=n1 MASTER_PORT=29500 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=none"
    train = f"/venv/bin/python train.py --output_dir {OUT}"
    found = job_of(
        [
            process(10, f"/venv/bin/python /venv/bin/torchrun --nproc-per-node 2 train.py --output_dir {OUT}"),
            process(11, train, parent=10, env=f"{env} RANK=8"),
            process(12, train, parent=10, env=f"{env} RANK=9"),
            process(13, train, parent=11, name="pt_data_worker", env=f"{env} RANK=8"),
            process(14, train, parent=11, env=f"{env} RANK=8"),
            process(15, "python helper.py", parent=12),
            process(20, "python other.py", env="MASTER_ADDR=n1 MASTER_PORT=29501 RANK=0"),
        ],
        PLACES,
    )
    assert ranks_of(found) == {8: 11, 9: 12}
    assert {one.pid: rank for one, rank in found.loaders.items()} == {13: 8, 14: 8}
    assert [one.id.pid for one in found.launchers] == [10, 15]
    assert found.world_size == 16


def test_a_launcher_without_ranks_is_the_training_if_it_can_train() -> None:
    command = f"python /venv/bin/llamafactory-cli train --output_dir {OUT}"
    alone, forked = process(7, command), process(8, command, parent=7)
    found = job_of([alone, forked], PLACES)
    assert (ranks_of(found), list(found.loaders), found.launchers) == ({0: 7}, [forked.id], ())
    child = process(9, "python -m torch.distributed.run launcher.py", parent=7)
    rank = process(10, f"python launcher.py {OUT}", parent=9, env="RANK=0 WORLD_SIZE=1")
    assert ranks_of(job_of([alone, child, rank], PLACES)) == {0: 10}
    assert ranks_of(job_of([process(7, f"torchrun train.py {OUT}")], PLACES)) == {}


@pytest.mark.parametrize(
    ("wrapper", "name", "between"),
    [
        ("timeout 7200", "timeout", ""),
        ("nsys profile", "nsys", ""),
        ("apptainer exec image.sif", "apptainer", "sh -c train"),
        ("docker run image", "docker", "containerd-shim"),
        ("python /opt/conda/bin/conda run", "python", "bash -c train"),
        ("python sweep.py", "python", ""),
    ],
)
def test_a_program_that_only_runs_the_training_is_its_launcher(wrapper: str, name: str, between: str) -> None:
    train = f"python train.py --out {OUT}"
    wrapped = [process(7, f"{wrapper} {train}", name=name), process(9, train, parent=8 if between else 7)]
    if between:
        wrapped.append(process(8, between, parent=1 if "shim" in between else 7, name=between.split(maxsplit=1)[0]))
    found = job_of([*wrapped, process(10, "python -c spawn_main", parent=9)], PLACES)
    assert ranks_of(found) == {0: 9}
    assert [one.id.pid for one in found.launchers] == [7]
    assert [one.pid for one in found.loaders] == [10]


def test_an_evaluation_that_a_training_starts_is_not_the_training() -> None:
    for command in (f"python train.py --out {OUT}", f"./train --out {OUT}"):
        evaluation = replace(process(9, f"python eval.py --out {OUT}", parent=7), id=ProcessId(pid=9, created_s=9000.0))
        assert ranks_of(job_of([process(7, command, name=command.split()[0]), evaluation], PLACES)) == {0: 7}


def test_the_names_that_a_user_gives_a_training_are_its_labels() -> None:
    found = process(7, "python train.py --run_name=a --task sft --tag", env="SLURM_JOB_NAME=night")
    assert labels_of(found) == ("--run_name a", "--task sft", "--tag", "Slurm job night")


def test_output_is_of_a_job_if_no_other_program_prints_there() -> None:
    trainer = process(7, f"torchrun train.py {OUT}", outputs=("/data/sft.out", "/data/all.out"))
    shell = process(8, "bash sweep.sh", name="bash", outputs=("/data/sft.out",))
    other = process(9, "python train.py /data/elsewhere", outputs=("/data/all.out",))
    assert job_of([trainer, shell, other], PLACES).outputs == {"/data/sft.out"}


def test_ranks_that_name_nothing_are_found_by_the_address_of_their_job() -> None:
    env = "MASTER_ADDR=n1 MASTER_PORT=29500 WORLD_SIZE=2"
    found = job_of(
        [
            process(11, "python train.py", env=f"{env} RANK=0", outputs=(f"{OUT}/log.txt",)),
            process(12, "python train.py", env=f"{env} RANK=1", outputs=("/elsewhere/log.txt",)),
            process(13, "python unrelated.py", env="MASTER_ADDR=n1 MASTER_PORT=29500"),
        ],
        PLACES,
    )
    assert ranks_of(found) == {0: 11, 1: 12}


def test_folders_that_hold_anything_and_arguments_that_are_no_paths_name_no_training() -> None:
    for folder, command in {
        "/home/alice/out": "python app.py --user-data-dir=/home/alice",
        "/root/out": "python app.py /root",
        "/exp/b": "python train.py --root /exp --name a",
        "/data/a": "python train.py '' . -- --out=",
        "/data": "python train.py .",
    }.items():
        trainer = replace(process(7, command), arguments=tuple(command.replace("''", "").split(" ")))
        assert job_of([trainer], Places(run="sft", folder=folder)) == Job(), folder


def test_a_process_that_serves_belongs_to_the_run_if_it_has_a_rank() -> None:
    env = "RANK=0 WORLD_SIZE=2 MASTER_PORT=1"
    assert ranks_of(job_of([process(7, f"python -m vllm.rlhf {OUT}", env=env)], PLACES)) == {0: 7}


def test_slurm_gives_ranks_only_to_the_tasks_of_a_step() -> None:
    batch = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=2"
    found = job_of(
        [process(10, "python gpu_monitor.py", env=batch), process(11, f"python train.py {OUT}", env=batch)], PLACES
    )
    assert (ranks_of(found), found.world_size) == ({0: 11}, 1)
    task = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID"
    found = job_of([process(10 + n, f"python train.py {OUT}", env=f"{task}={n}") for n in (0, 1)], PLACES)
    assert (ranks_of(found), found.world_size) == ({0: 10, 1: 11}, 2)
    alone = process(10, f"python train.py {OUT}", env="SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_PROCID=5")
    assert ranks_of(job_of([alone], PLACES)) == {0: 10}


@pytest.mark.parametrize(
    ("env", "network"),
    [
        ("MASTER_PORT=29500 WORLD_SIZE=1 RANK=0 TORCHELASTIC_RUN_ID=none", "net:[1]"),
        ("WORLD_SIZE=2 RANK=0 TORCHELASTIC_RUN_ID=none", "net:[1]"),
        ("MASTER_PORT=29500 WORLD_SIZE=2 RANK=0", "net:[2]"),
        ("MASTER_PORT=29500 WORLD_SIZE=2 RANK=0 TORCHELASTIC_RUN_ID=a", "net:[1]"),
    ],
)
def test_ranks_of_another_job_are_none_of_this_one(env: str, network: str) -> None:
    named = process(11, f"python train.py {OUT}", env="MASTER_PORT=29500 WORLD_SIZE=2 RANK=1 TORCHELASTIC_RUN_ID=none")
    found = job_of(
        [replace(named, network="net:[1]"), replace(process(10, "python b.py", env=env), network=network)], PLACES
    )
    assert ranks_of(found) == {1: 11}


def test_of_two_processes_with_a_rank_the_one_that_names_the_run_has_it() -> None:
    env = "MASTER_PORT=29500 WORLD_SIZE=2 RANK=0"
    found = job_of([process(10, "python other.py", env=env), process(11, f"python train.py {OUT}", env=env)], PLACES)
    assert ranks_of(found) == {0: 11}


def test_the_rank_of_a_launcher_of_slurm_is_not_that_of_the_process_that_it_starts() -> None:
    slurm = "SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=0"
    wrapper = process(10, f"python start.py {OUT}", env=slurm)
    assert ranks_of(
        job_of([wrapper, process(11, "python train.py", parent=10, env=f"{slurm} RANK=0 WORLD_SIZE=2")], PLACES)
    ) == {0: 11}


def test_a_chain_and_a_cycle_of_parents_end() -> None:
    chain = [process(n, "python x.py", parent=n - 1) for n in range(2, 3000)]
    cycle = [process(5000, "python y.py", parent=5001), process(5001, "python y.py", parent=5000)]
    trainer = process(6000, f"python train.py {OUT}", parent=2999)
    child = process(6001, "python worker.py", parent=6000)
    assert ranks_of(job_of([*chain, *cycle, trainer, child], PLACES)) == {0: 6000}


def test_processes_that_the_tracker_has_started_are_never_trainers() -> None:
    found = [process(5, "python x.py"), process(6, f"python y.py {OUT}", parent=5), process(7, f"python z.py {OUT}")]
    assert ranks_of(job_of(found, Places(run="sft", folder=OUT, own=frozenset({5})))) == {0: 7}


def test_a_pattern_of_the_settings_decides_alone() -> None:
    found = [process(6, f"python a.py {OUT}"), process(7, "python megatron.py --save s3://b/c")]
    assert ranks_of(job_of(found, Places(run="sft", folder=OUT, pattern=re.compile("megatron")))) == {0: 7}


def test_a_single_process_with_workers_is_one_rank() -> None:
    train = f"python train.py --output_dir {OUT}"
    found = job_of([process(7, train), process(8, train, parent=7), process(9, "nvcc x.cu", parent=8)], PLACES)
    assert ranks_of(found) == {0: 7}
    assert {one.pid for one in found.loaders} == {8, 9}


@pytest.mark.parametrize("case", ["loader", "torchrun_sleep", "zombie"])
def test_real_jobs_are_sorted_out(case: str) -> None:
    recorded = processes(case)
    found = job_of(list(recorded.values()), Places(run=case, folder=f"/app/out/{case.removeprefix('torchrun_')}"))
    if case == "zombie":
        assert found == Job()  # a dead process says nothing of itself
        return
    assert ranks_of(found) == {0: recorded["rank0"].id.pid, 1: recorded["rank1"].id.pid}
    workers = {one.id.pid for name, one in recorded.items() if "worker" in name}
    assert {one.pid for one in found.loaders} == workers
