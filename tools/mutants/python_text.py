"""The mutants of a Python text. The small changes come from mutmut.

Some code gets no mutants: annotations, decorators, f-strings, and `raise` statements, because
the words of a message are not logic.
"""

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation import mutators

from .mutant import Mutant, replaced


def python_mutants(path: str, source: str) -> list[Mutant]:
    """One mutant for each small change, in the order of the text."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    visitor = _Visitor(wrapper.module, source)
    wrapper.visit(visitor)
    mutants = {}
    for function, start, end, words in visitor.changes:
        mutant = replaced(path, source, function, start, end, words)
        if mutant.text != source and _is_python(mutant.text):
            mutants.setdefault(mutant.text, mutant)
    return sorted(mutants.values(), key=lambda mutant: mutant.line)


def _is_python(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _one_less(node: cst.Integer) -> Iterator[cst.Integer]:
    if node.evaluated_value > 0:
        yield node.with_changes(value=repr(node.evaluated_value - 1))


def _without_a_keyword(node: cst.Call) -> Iterator[cst.Call]:
    for place, argument in enumerate(node.args):
        if argument.keyword and argument.star == "":
            yield node.with_changes(args=[*node.args[:place], *node.args[place + 1 :]])


def _negated(node: cst.If | cst.While | cst.CompIf | cst.IfExp) -> Iterator[cst.CSTNode]:
    """The opposite of a condition that is not a comparison, `not` or `and`.

    No other operator reverses such a condition.
    """
    if not isinstance(
        node.test, cst.Comparison | cst.UnaryOperation | cst.BooleanOperation | cst.NamedExpr
    ):
        yield (
            node.test,
            cst.UnaryOperation(
                cst.Not(),
                node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]),
            ),
        )


def _without_statement(
    node: cst.Expr | cst.Raise | cst.Assert | cst.Del | cst.Return,
) -> Iterator[cst.Pass]:
    is_text = isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString)
    if not is_text and not (isinstance(node, cst.Return) and node.value):
        yield cst.Pass()


_OPERATORS = [
    (cst.BaseNumber, mutators.operator_number),
    (cst.Integer, _one_less),
    (cst.Name, mutators.operator_name),
    (cst.Assign, mutators.operator_assignment),
    (cst.AnnAssign, mutators.operator_assignment),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.Call, _without_a_keyword),
    (cst.Call, mutators.operator_symmetric_string_methods_swap),
    (cst.Call, mutators.operator_unsymmetrical_string_methods_swap),
    (cst.Lambda, mutators.operator_lambda),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.Match, mutators.operator_match),
    ((cst.If, cst.While, cst.CompIf, cst.IfExp), _negated),
    ((cst.Expr, cst.Raise, cst.Assert, cst.Del, cst.Return), _without_statement),
]


class _Visitor(cst.CSTVisitor):
    """`changes`: (function, first and last replaced character, new words) each."""

    METADATA_DEPENDENCIES = (WhitespaceInclusivePositionProvider,)

    def __init__(self, module: cst.Module, source: str):
        self.changes = []
        self._module = module
        self._within = []
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.FormattedString):
            return False
        if isinstance(node, cst.If) and m.matches(node.test, m.Name("TYPE_CHECKING")):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._within.append(node.name.value)
        for kind, operator in _OPERATORS:
            if isinstance(node, kind):
                for new in operator(node):
                    old, new = new if isinstance(new, tuple) else (node, new)
                    self._add(old, new)
        return not isinstance(node, cst.Raise)

    def on_leave(self, original_node: cst.CSTNode):
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._within.pop()

    def _add(self, old: cst.CSTNode, new: cst.CSTNode):
        span = self.get_metadata(WhitespaceInclusivePositionProvider, old)
        start, end = (
            self._line_starts[point.line - 1] + point.column
            for point in (span.start, span.end)
        )
        self.changes.append(
            (".".join(self._within), start, end, self._module.code_for_node(new))
        )
