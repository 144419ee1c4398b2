"""How state machines of hypothesis are run."""

from hypothesis import Phase, settings


def steps(number: int) -> settings:
    """The steps that fail are shown as they were drawn. To find fewer takes minutes, and these
    are few enough to be read.
    """
    drawn = Phase.explicit, Phase.generate
    return settings(max_examples=100, stateful_step_count=number, phases=drawn)
