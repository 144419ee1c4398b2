"""The recorded conversation: three people's questions and answers, in a file and as text."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record


@dataclass(frozen=True)
class Answer:
    """One person's question and answer.

    num_prompt: tokens of the prompt, the system's text included.
    num_output: tokens of the answer.
    blocks: ids, in the step in which most blocks were in use.
    """

    name: str
    question: str
    answer: str
    num_prompt: int
    num_output: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class ConversationRun(Record, kept_in="conversation"):
    """A conversation of several people with one engine.

    card: the processor.
    steps: of the engine, for all answers.
    tokens_per_second: of all answers together. The time includes the prompts.
    wish: the model's answer to WISH afterwards.
    """

    card: str
    device: str
    torch: str
    transformers: str
    threads: int
    date: str
    command: str
    model: str
    system: str
    answers: tuple[Answer, ...]
    steps: int
    tokens_per_second: float
    wish: str

    @property
    def shared(self) -> set[int]:
        """The blocks that belong to more than one person's prompt."""
        everyone = [block for answer in self.answers for block in answer.blocks]
        return {block for block in everyone if everyone.count(block) > 1}

    @property
    def used(self) -> set[int]:
        return {block for answer in self.answers for block in answer.blocks}


recorded = ConversationRun.recorded


def table(run: ConversationRun) -> str:
    """A conversation as text."""
    lines = [
        f"{run.model} on {run.card}, {run.threads} threads, {run.date}, by {run.command_today}"
    ]
    for answer in run.answers:
        lines += ["", f"{answer.name}: {answer.question}", f"  {answer.answer}"]
    return "\n".join([*lines, "", summary(run)])


def summary(run: ConversationRun) -> str:
    """The blocks and the speed of a run."""
    return in_a_line(len(run.used), len(run.shared), run.tokens_per_second)


def in_a_line(used: int, shared: int, rate: float) -> str:
    """Numbers of blocks, and tokens a second."""
    return f"{used} blocks in use, {shared} of them shared · {rate:.0f} tokens a second"
