"""The exercises of lesson 07, one in each file, with their mistake banks."""

from lessons_exercises.lesson_07 import (
    bytes,
    combine,
    cut_evenly,
    num_splits,
    online_softmax,
    stages,
    wide_score,
)

EXERCISES = (
    bytes.EXERCISE,
    wide_score.EXERCISE,
    online_softmax.EXERCISE,
    stages.EXERCISE,
    combine.EXERCISE,
    num_splits.EXERCISE,
    cut_evenly.EXERCISE,
)
