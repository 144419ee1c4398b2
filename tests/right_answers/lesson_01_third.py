"""Lesson 01's known mistakes as a third learner wrote them."""

from right_answers.lesson_01_second import FILL, free_list

RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "1.1": {
        "every-id-zero": [free_list((FILL, "ids = std::vector<int>(num_blocks, 0);"))],
    },
}
