"""Whether the text that 6.8 gives to be repaired is as it was."""

from lessons_lib.cuda_on_cpu.code_text import mask


class IsGiven:
    """Whether nothing but comments and spaces has been changed.

    A sandbox cannot make the text that was given, so it is sent there.
    """

    def __init__(self, given: str = ""):
        self.given = given

    def __call__(self, answer: str) -> bool:
        return len({"".join(mask(text).split()) for text in (answer, self.text())}) == 1

    def __reduce__(self):
        return IsGiven, (self.text(),)

    def text(self) -> str:
        if not self.given:
            from lessons_lib.source.lesson import given_kernel

            self.given = given_kernel("bug_hunt.cu", "6.8")
        return self.given
