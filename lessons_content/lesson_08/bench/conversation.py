"""Three people who ask at once: `python -m tools.bench conversation --record`.

The model that speaks is SmolLM2-135M-Instruct. The course does not hand out its weights. So
lessons show the answers that are recorded here.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from lessons_content.bench_records.command import Command
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_08.bench.conversation_runs import Answer, ConversationRun, table
from lessons_content.lesson_08.bench.speaker import add_model, model_folder, model_name
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.conversation import Conversation
from paged_attention.engine.engine import Engine
from paged_attention.engine.serve.token_text import TokenizerWords

SYSTEM = (
    "You are the assistant of a course on computers. You are friendly and patient. The people "
    "who ask you are curious, and they have little time. Answer each question in one or two "
    "short sentences, in plain English, without a list."
)
QUESTIONS = {
    "Ada": "What is the capital of France?",
    "Ben": "What can I cook with eggs and tomatoes?",
    "Cleo": "What is a library good for?",
}
WISH = "Write a short wish for somebody who has just finished a course."
TOKEN_BUDGET = 64  # of a step; less than a prompt, so that other requests find its blocks


def num_used(blocks: dict[str, list[int]]) -> int:
    return len({block for ids in blocks.values() for block in ids})


def talk(folder: Path) -> dict:
    """The answers of the model in a folder, and their blocks, as fields of a run."""
    model, words = load_model(folder), TokenizerWords(folder)
    engine = Engine(model, token_budget=TOKEN_BUDGET)
    conversation = Conversation(engine, words, SYSTEM, QUESTIONS)
    most: dict[str, list[int]] = {}
    while conversation.step():
        running = [request.id for request in engine.scheduler.running]
        blocks = {str(id): engine.manager.blocks_of(id) for id in running}
        if num_used(blocks) >= num_used(most):
            most = blocks
    wish = Conversation(engine, words, SYSTEM, {"": WISH})
    while wish.step():
        pass
    told = conversation.answers
    return {
        "answers": tuple(
            Answer(
                name,
                QUESTIONS[name],
                told[name],
                len(request.prompt),
                len(request.output),
                tuple(most.get(name, ())),
            )
            for name, request in conversation.requests.items()
        ),
        "steps": len(conversation.history),
        "tokens_per_second": conversation.tokens_per_second,
        "wish": wish.answers[""],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if the model is not here, or if nothing is recorded."""
    command = Command(
        "conversation",
        "Lets three people ask SmolLM2 at once, and prints what they are told.",
        ConversationRun,
        table,
    )
    add_model(command)
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    if (folder := model_folder(arguments)) is None:
        return 1
    said = talk(folder)
    run = ConversationRun(
        **facts_for(ConversationRun, "cpu"),
        command=command.line(arguments, "model"),
        model=model_name(arguments),
        system=SYSTEM,
        **said,
    )
    return command.keep(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
