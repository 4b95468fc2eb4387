"""Entry point of the child: PYTHON -P child/start.py, with the Python that lm-evaluation-harness is installed for.

That may be another environment. From the tracker's environment it can import only this package, wherever that is.
"""

import importlib.util
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]


def see_package() -> None:
    """Make `eval_jobs` importable, and no other package in the same folder."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE.name, PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    assert spec is not None  # noqa: S101 - the file is there: we run from beside it
    assert spec.loader is not None  # noqa: S101 - Python files have one
    sys.modules[PACKAGE.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    see_package()
    from eval_jobs.evaluate.lm_eval.child.main import main

    main()
