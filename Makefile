# `make demo` and `make test` set everything up by themselves.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-deep test-versions test-trainers coverage check format lint types imports unit docs texts site pictures lock bench-probe bench-client bench-loop bench-evaluator bench-verdicts bench-worlds bench-judge bench-replay bench-scale bench-screen bench-chaos bench-hostile bench-gate bench-frames bench-health bench-hang bench-report clean
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2
# Tests on real parts wait for most of their time.
PYTEST_ALL := $(BIN)/python -m pytest -n 3

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.ready ## make .venv from requirements/cpu.lock
.venv/.ready: requirements/cpu.lock pyproject.toml requirements/setup.sh
	@requirements/setup.sh

demo: setup ## train a tiny model, evaluate every checkpoint, show what it forgot
	@$(BIN)/python examples/tiny_forgetting/demo.py

test: setup ## all tests, on real parts
	@$(PYTEST_ALL)

test-deep: setup ## what `make test` samples, in full: a kill at every moment, long simulations
	@TRACKER_TEST_DEEP=1 $(PYTEST)

test-versions: setup ## other versions of MLflow and EvalScope, and polars, each in an environment of its own; VLLM=1: of vLLM, too
	@$(BIN)/python -m benchmarks.versions $(if $(VLLM),--vllm)

test-trainers: setup ## real trainers beside the tracker, each in an environment of its own
	@$(BIN)/python -m benchmarks.trainers.conversions
	@$(BIN)/python -m benchmarks.trainers --write

coverage: setup ## which lines and branches all tests reach, those of the processes they start too
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n 2; tested=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$tested

check: format lint types imports unit ## what every commit must pass

format: setup
	@$(BIN)/ruff format --check .
lint: setup
	@$(BIN)/ruff check .
types: setup
	@$(BIN)/mypy
imports: setup
	@$(BIN)/lint-imports
unit: setup
	@$(PYTEST) -m "not slow" tests/unit tests/architecture

docs: setup ## write the generated pages of docs/
	@$(BIN)/python -m docs.generator

texts: setup ## write every text that a user can see into build/texts, to be read in one go
	@$(BIN)/python -m docs.generator.texts

site: docs ## build the documentation site into site/; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: setup ## render the terminal, report, MLflow and site pictures of the documentation from the demo
	@$(BIN)/python -m docs.generator.pictures

bench-probe: setup ## our latency probe beside `vllm bench serve`
	@$(BIN)/python benchmarks/probe_agreement.py

bench-evaluator: setup ## what the evaluator adds to the time of the answers
	@$(BIN)/python -m benchmarks.evaluator_overhead --server instant --delay-ms 20 --plans 200
	@$(BIN)/python -m benchmarks.evaluator_overhead

bench-client: setup ## how many streamed tokens a second the probe's client follows on one core
	@$(BIN)/python -m benchmarks.client_speed

bench-loop: setup ## the time from a saved checkpoint to its verdict, and what a trainer beside it notices
	@$(BIN)/python -m benchmarks.loop_time

bench-verdicts: setup ## false alarms and found losses of our verdicts and of the peers' rules
	@$(BIN)/python -m benchmarks.verdicts

bench-worlds: setup ## false alarms in healthy runs that are noisier than most, with new seeds each time
	@$(BIN)/python -m benchmarks.verdicts.worlds

bench-gate: setup ## how often a gate says regression without a loss, and what it misses
	@$(BIN)/python -m benchmarks.gate

bench-judge: setup ## the time that one more checkpoint of a long run takes to judge
	@$(BIN)/python -m benchmarks.judge_time

bench-screen: setup ## what asking a part of each benchmark first costs in what is found, and what it saves
	@$(BIN)/python -m benchmarks.screening

bench-scale: setup ## what a project of 100,000 plans and 40 million graded answers costs
	@$(BIN)/python -m benchmarks.scale
	@$(BIN)/python -m benchmarks.scale --runs

bench-health: setup ## lines of trainers' logs in a second, and the agent's memory and CPU time
	@$(BIN)/python -m benchmarks.health

bench-hang: setup ## what a healthy training makes the watch of its processes report, and what that watch costs (45 minutes)
	@$(BIN)/python -m benchmarks.hang

bench-frames: setup ## CPU time and memory of the results in Python
	@$(BIN)/python -m benchmarks.frames

bench-report: setup ## size of the report of a long run, and the time until it can be used
	@$(BIN)/python -m benchmarks.report_page

bench-chaos: setup ## kill everything 300 times and count what is lost, doubled, misread or left behind
	@$(BIN)/python -m benchmarks.chaos

bench-hostile: setup ## random folders, endpoints and MLflow servers of a hostile neighbor, and 10,000 checkpoints at once
	@$(BIN)/python -m benchmarks.hostile

bench-replay: setup ## our verdicts on published training runs, and how far repeated runs differ
	@$(BIN)/python -m benchmarks.replay_series
	@$(BIN)/python -m benchmarks.replay_seeds

lock: setup ## resolve requirements/cpu.in anew
	@$(BIN)/uv pip compile --quiet --python-version 3.11 pyproject.toml requirements/cpu.in --override requirements/overrides.txt \
	  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu) \
	  --no-emit-find-links --no-emit-index-url --no-header --no-annotate -o requirements/cpu.lock

clean: ## remove .venv and the demo's folder
	rm -rf .venv .demo
