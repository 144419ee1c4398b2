"""Lesson 01's known mistakes as a third learner wrote them."""

from right_answers.lesson_01_second import FILL, free_list, manager

RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "1.1": {
        "every-id-zero": [free_list((FILL, "ids = std::vector<int>(num_blocks, 0);"))],
    },
    "1.2": {
        "error-without-the-id": [
            manager(("throw BlockNotAllocatedError(id);", "throw BlockNotAllocatedError(counts[id]);")),
            manager(("throw DoubleFreeError(id);", "throw DoubleFreeError(counts.at(id));")),
            manager(("throw BlockIndexError(id);", "throw BlockIndexError(counts.size());"))],
    },
}
