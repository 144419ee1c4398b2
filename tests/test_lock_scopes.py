"""Exercise 1.3's look at the text: a lock that ends before the work is told from locks that are merely unusual."""

import pytest

from solutions.checks.lesson_01.lock_scopes import works_after_release

CLASS = """class Manager {{
 public:
  {method}
 private:
  FreeList free_list_;
  std::vector<int> counts;
  mutable std::mutex mutex_;
}};"""
GUARD = "std::lock_guard<std::mutex> guard(mutex_);"
forms = pytest.mark.parametrize("form", ["{}", "namespace cache {{\n{}\n}}"], ids=["alone", "in a namespace"])


@forms
@pytest.mark.parametrize("method", [
    f"void share(int b) {{ {{ {GUARD} check(b); }} ++counts[b]; }}",
    f"int free_blocks() const {{ {{ {GUARD} }} return free_list_.size(); }}",
    "int count(int b) const { mutex_.lock(); mutex_.unlock(); return counts[b]; }",
    "int count(int b) const { std::unique_lock<std::mutex> hold(mutex_); check(b); hold.unlock(); return counts.at(b); }",
])
def test_work_after_the_lock_is_found(form, method):
    assert works_after_release(form.format(CLASS.format(method=method)))


@forms
@pytest.mark.parametrize("method", [
    f"void share(int b) {{ {{ {GUARD} check(b); }} {{ {GUARD} ++counts[b]; }} }}",
    f"void change(int b) {{ if (b) {{ {GUARD} ++counts[b]; }} else {{ {GUARD} --counts[b]; }} }}",
    f"int count(int b) const {{ std::vector<int> copy; {{ {GUARD} copy = counts; }} return copy[b]; }}",
    f"bool known(int b) const {{ {{ {GUARD} }} return b < counts.size(); }}",
    f"int count(int b) const {{ int n; {{ {GUARD} n = counts[b]; }} return n; }} int look(int b) {{ return counts[b]; }}",
    "int count(int b) const { mutex_.lock(); if (b < 0) { mutex_.unlock(); throw 1; } int n = counts[b]; mutex_.unlock(); return n; }",
    "int count(int b) const { mutex_.lock(); check(b); mutex_.unlock(); mutex_.lock(); int n = counts[b]; mutex_.unlock(); return n; }",
    "int count(int b) const { std::unique_lock<std::mutex> hold(mutex_, std::defer_lock); hold.lock(); return counts[b]; }",
])
def test_an_unusual_right_lock_is_left_alone(form, method):
    assert not works_after_release(form.format(CLASS.format(method=method)))
