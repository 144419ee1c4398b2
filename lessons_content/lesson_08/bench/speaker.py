"""The model that speaks, as an argument of a benchmark's command."""

import argparse
import sys
from pathlib import Path

from lessons_content.bench_records.command import Command
from paged_attention.engine.speaking import SMOLLM2, ModelNotHereError, speaking_model


def add_model(command: Command) -> None:
    add = command.parser.add_argument
    add("--model", default=SMOLLM2, help="a folder, smollm2, or a name on the hub")
    add("--download", action="store_true", help="fetch it if it is not on this machine")


def model_folder(arguments: argparse.Namespace) -> Path | None:
    """The model's folder. None, with the reason on stderr, if it is not on this machine."""
    try:
        return speaking_model(arguments.model, arguments.download)
    except ModelNotHereError as error:
        print(error, file=sys.stderr)
        return None


def model_name(arguments: argparse.Namespace) -> str:
    is_known = arguments.model == SMOLLM2
    return "SmolLM2-135M-Instruct" if is_known else str(arguments.model)
