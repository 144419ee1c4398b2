"""An exception of C++ is told by its own name, with the line that may have thrown it."""

import pytest

from lessons_content.mistakes import thrown
from lessons_lib import checks

FREE_LIST = """#include <stdexcept>
#include <vector>
class FreeList {
 public:
  explicit FreeList(int num_blocks) {
    for (int i = num_blocks - 1; i >= 0; --i) block_ids_.push_back(i);
  }
  int pop() {
    POP
  }
  void push(int block_id) { block_ids_.push_back(block_id); }
  int size() const { return block_ids_.size(); }
 private:
  std::vector<int> block_ids_;
};
"""
POPS = {
    "int id = block_ids_.at(block_ids_.size()); block_ids_.pop_back(); return id;": (
        "std::out_of_range"
    ),
    "std::vector<int> copy(size_t(1) << 60); return copy[0];": "std::bad_alloc",
    'throw std::logic_error("not now"); return 1;': "an exception: not now",
}


@pytest.mark.parametrize("pop", POPS)
def test_an_exception_is_told_with_its_line(pop):
    message = checks.run("1.1", FREE_LIST.replace("POP", pop)).message
    assert message.startswith(f"Your code threw {POPS[pop]}")
    assert f"\n  thrown in line 9: `{pop}`" in message


def test_no_line_is_named_where_several_may_have_thrown():
    message = "?\n  expected: 1\n  got:      StandardOutOfRange: it names no block; 1 free"
    text = "a.at(1);\nb.at(2);"
    assert thrown.told(message, text) == (
        "Your code threw std::out_of_range.\n"
        "  expected: 1\n  got:      std::out_of_range; 1 free"
    )
    assert thrown.told("?\n  got:      3", text) == "?\n  got:      3"
