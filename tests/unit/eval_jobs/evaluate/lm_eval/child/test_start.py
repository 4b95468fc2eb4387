"""The child begins in the harness's environment, which may lack nearly everything that ours has."""

import subprocess
import sys

from eval_jobs.evaluate.lm_eval.evaluator import CHILD

CODE = f"""
import runpy, sys
for name in ("aiohttp", "evalscope", "numpy", "openai", "psutil", "pydantic", "sqlalchemy", "tracker", "yaml"):
    sys.modules[name] = None
runpy.run_path({str(CHILD)!r})["see_package"]()
import eval_jobs.evaluate.lm_eval.child.main as main
print(main.__file__)
"""


def test_the_child_needs_the_standard_library_and_httpx_only() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(CHILD.with_name("main.py"))
