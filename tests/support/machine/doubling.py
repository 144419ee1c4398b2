"""Exercise 9.9, which the course does not have: to double a number, in Python and in C++."""

from lessons_lib.checks import CheckResult, Exercise, Form, Mistake


def doubled(x):
    return 2 * x


DOUBLES = Exercise(
    id="9.9",
    title="a title",
    answer_name="doubled",
    reference=doubled,
    cases=lambda: [3, 1, 2],
    observe=lambda f, x: f(x),
    size=lambda x: x,
    mistakes=(
        Mistake("squares", "It squares.", lambda x: x * x),
        Mistake("adds", "It adds.", None, also=(lambda x: x + 2, lambda x: x + 3)),
    ),
    hints=("one", "two"),
)


WRONG = CheckResult("9.9", False, "wrong", "The result is not right.\nmore")


class Kept(Form):
    """A form whose results are recorded for the cases in `records`."""

    def __init__(self, records=None, is_built=False, is_recorded=False, does=doubled):
        self.records, self.does, self.loaded = records or {}, does, 0
        self.is_built, self.is_recorded = is_built, is_recorded

    def load(self):
        self.loaded += 1
        return self.does

    def record(self, number):
        return self.records.get(number)
