"""The command `paged-attention-course`, which a wheel brings: lab, hub, doctor, grade, chat.

In a checkout, `make` has the same commands: this is `python -m lessons_lib.start`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lessons_lib import rooms


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="paged-attention-course", description="PagedAttention, built from scratch."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    lab = commands.add_parser(
        "lab",
        usage="paged-attention-course lab [FOLDER] [--only-copy] [-- JUPYTERLAB'S ARGUMENTS]",
        help="copy the lessons into your own folder, and open JupyterLab there",
        description="Copies the lessons into a folder and opens JupyterLab there. Called "
        "again, it brings new versions. It never writes to a notebook that you have changed: "
        "the new version is put beside it, with your answers.",
    )
    lab.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    lab.add_argument("--only-copy", action="store_true", help="do not open JupyterLab")
    hub = commands.add_parser(
        "hub",
        usage="paged-attention-course hub FOLDER [JUPYTERHUB'S ARGUMENTS]",
        help="as lab, for the server that a JupyterHub starts for a learner",
        description="Copies the lessons as lab does, and becomes the learner's server. It is "
        "for c.Spawner.cmd in a hub's configuration.",
    )
    hub.add_argument("folder", type=Path, metavar="FOLDER")
    commands.add_parser("doctor", help="show what this machine can do")
    commands.add_parser("grade", help="grade the notebooks of a class")
    commands.add_parser("chat", help="talk to a model that runs on your own answers")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["grade"]:  # it has its own help
        return _grade(words[1:])
    if words[:1] == ["chat"]:  # its arguments are the server's
        return _chat(words[1:])
    if words[:1] == ["hub"]:  # JupyterHub puts its arguments after ours
        return _hub(parser.parse_args(words[:2]), words[2:])
    cut = words.index("--") if "--" in words else len(words)
    if not words:
        parser.print_help()
        return 2
    options, unknown = parser.parse_known_args(words[:cut])
    if unknown:
        rest = " ".join(words[words.index(unknown[0]) : cut])
        ours = f" JupyterLab's come after --: {parser.prog} lab -- {rest}"
        parser.error(f"no argument {unknown[0]} here.{ours if words[0] == 'lab' else ''}")
    return _doctor() if options.command == "doctor" else _lab(options, words[cut + 1 :])


def _lab(options: argparse.Namespace, rest: list[str]) -> int:
    from lessons_lib.start import lab

    return lab.open_lessons(options.folder, rest, only_copy=options.only_copy)


def _hub(options: argparse.Namespace, rest: list[str]) -> int:
    from lessons_lib.start import lab

    return lab.open_on_hub(options.folder, rest)


def _doctor() -> int:
    from lessons_lib.start import doctor

    return doctor.main()


def _chat(words: list[str]) -> int:
    model = rooms.load("chat").SMOLLM2
    own = ["--model", model, "--mine", "--browser", "--port", "0"]
    return rooms.load("server").main([*own, *words])


def _grade(words: list[str]) -> int:
    return rooms.load("grader").main(words)


if __name__ == "__main__":
    sys.exit(main())
