"""An OpenAI-compatible server as a command: `python -m tests.fakes.command_server MODEL PORT`.

It knows the answers that stand in MODEL/answers.txt, one `question=answer` a line.
"""

import sys
import threading
from pathlib import Path

from tests.fakes.openai_server import OpenAIServer, Reply, Request


def main(model: str, port: int) -> None:
    """Serve until somebody ends this process."""

    def answer(request: Request) -> Reply:
        known = dict(line.split("=") for line in _lines(Path(model) / "answers.txt"))
        return Reply(text=known.get(request.prompt.strip(), "I do not know"))

    with OpenAIServer(answer, model=Path(model).name, port=port):
        threading.Event().wait()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
