"""Names slips that any answer in Python may have: one change to its code makes it right.

The change is made in the learner's own code, which is then tried on all cases. So the message
about a line is true. A trap of Python is named even if its repair makes only more cases right
than before: then there is another mistake besides.
"""

import __future__

import ast
import copy
import functools
import inspect
import itertools
import linecache
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lessons_content.exercises.naming_words import listed
from lessons_content.mistakes.ends import with_an_end
from lessons_content.mistakes.pairs import BESIDES

WORK = 2.0  # seconds of this thread's work
_PLACE = "<mended>"
_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)
_LAZY = {"map", "filter"}
_READ_ONCE = {"map", "zip", "filter", "iter", "reversed", "enumerate"}
_DIVISIONS = (ast.FloorDiv, ast.Mod, ast.Div)
_OTHER_EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OVER_ALL = {"max": "amax", "amax": "amax", "min": "amin", "amin": "amin", "sum": "sum"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SHORT = {"int32": "int64", "int": "long"}
_PLACE_NAME = "_place"
_IN_ORDER = "(lambda all: sorted(all) if isinstance(all, set | frozenset) else all)({all})"


class Mended(NamedTuple):
    """A repaired answer, and words about the repair's place that do not give it away."""

    slug: str
    words: str
    is_trap: bool
    answer: Any


def slip(
    answer,
    is_right: Callable[[Any, int], bool],
    were_right: list[bool],
    work: float = WORK,
) -> tuple[str, str] | None:
    """(slug, message) of a change that makes the answer right, or nearer to it.

    is_right: whether a changed answer is right on a case.
    were_right: whether the answer itself is, for all cases.
    work: seconds after which it gives up.
    """
    if all(were_right):
        return None
    begun, nearer = time.thread_time(), None
    shown, cases = were_right.index(False), range(len(were_right))
    for mended in itertools.chain(_afresh(answer), _mended(answer, RULES)):
        if time.thread_time() - begun > work:
            break
        if not is_right(mended.answer, shown):
            continue
        are_right = [is_right(mended.answer, number) for number in cases]
        if all(are_right):
            return mended.slug, mended.words
        none_lost = all(now >= was for was, now in zip(were_right, are_right, strict=True))
        if mended.is_trap and none_lost and not nearer:
            nearer = mended.slug, mended.words + BESIDES
    return nearer


def hidden(
    answer, is_right: Callable[[Any], bool], work: float = WORK
) -> tuple[str, str] | None:
    """(slug, message) of a trap that a known mistake may hide, if without it all is right.

    The learner's line looks as if it did what that mistake leaves out.
    """
    begun = time.thread_time()
    rules = [rule for rule in RULES if rule[0] in HIDDEN]
    for mended in itertools.chain(_afresh(answer), _mended(answer, rules)):
        if time.thread_time() - begun > work:
            return None
        if is_right(mended.answer):
            return mended.slug, mended.words
    return None


def _afresh(answer) -> Iterator[Mended]:
    """The answer with its cell run anew before each call, if a call may leave something."""
    function, lines = _code_of(answer)
    tree = _definitions(lines, answer, ast.Assign) if function is answer else None
    if not (tree and (kept := [*_kept(tree, answer.__name__)])):
        return
    tree.body = [
        node for node in tree.body if node in kept or not isinstance(node, ast.Assign)
    ]

    @functools.wraps(answer)
    def afresh(*arguments, **named):
        return _built(tree, answer.__name__, answer.__globals__)(*arguments, **named)

    where = _where([node.lineno for node in kept], lines)
    yield Mended("kept-from-a-call-before", f"{where} {KEPT}", True, afresh)


def _kept(tree: ast.Module, name: str) -> Iterator[ast.expr | ast.Assign]:
    """The function's defaults and the cell's variables that a call may change."""
    own = next(node for node in tree.body if getattr(node, "name", "") == name)
    for default in (*own.args.defaults, *own.args.kw_defaults):
        if isinstance(default, _MUTABLE):
            yield default
    used = {node.id for node in ast.walk(own) if isinstance(node, ast.Name)}
    shared = {
        each for node in ast.walk(own) if isinstance(node, ast.Global) for each in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & shared or names & used and isinstance(node.value, _MUTABLE):
                yield node


def _mended(answer, rules: list) -> Iterator[Mended]:
    """The answer with each change that a rule makes, if its code is known.

    A trap may be in several places: then all of them are changed at once, too.
    """
    function, lines = _code_of(answer)
    tree = _definitions(lines, answer) if function else None
    for slug, words, makes in rules if tree else ():
        changes = [(node, put, [*makes(node)]) for node, put in _places(tree)]
        changes = [change for change in changes if change[2]]
        each = [[(node, put, new)] for node, put, news in changes for new in news]
        together = [[(node, put, news[0]) for node, put, news in changes]]
        for places in each + together * (slug in TRAPS and len(changes) > 1):
            for _, put, new in places:
                put(new)
            changed = _built(tree, answer.__name__, function.__globals__)
            for node, put, _ in reversed(places):
                put(node)
            if changed:
                numbers = {getattr(new, "about", node).lineno for node, _, new in places}
                where = _where(sorted(numbers), lines)
                yield Mended(slug, f"{where} {words}", slug in TRAPS, changed)


def _where(numbers: list[int], lines: list[str]) -> str:
    first, *more = numbers
    same = f" The same is in line {listed(more)}." if more else ""
    return f"Line {first}: `{lines[first - 1].strip()}`.{same}"


def _code_of(answer) -> tuple[types.FunctionType | None, list[str]]:
    """The answer's function, or a class's first function, and the lines of its cell."""
    parts = vars(answer).values() if inspect.isclass(answer) else (answer,)
    function = next(filter(inspect.isfunction, parts), None)
    if function is None or hasattr(function, "__wrapped__") or function.__closure__:
        return None, []
    return function, linecache.getlines(function.__code__.co_filename)


def _definitions(lines: list[str], answer, *also: type) -> ast.Module | None:
    """The definitions in the answer's cell, and nodes of the types `also`.

    None for a class with loops, which may not end.
    """
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # a magic command of IPython
        return None
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.decorator_list
        or isinstance(node, also)
    ]
    own = [node for node in tree.body if getattr(node, "name", "") == answer.__name__]
    loops = inspect.isclass(answer) and any(
        isinstance(node, ast.While | ast.For) for node in ast.walk(tree)
    )
    return tree if own and not loops else None


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Each node that has a line, and a function that replaces the node by another one."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, ast.AST) and hasattr(value, "lineno"):
                yield value, functools.partial(setattr, parent, field)
            for index, child in enumerate(value if isinstance(value, list) else ()):
                if hasattr(child, "lineno"):
                    yield child, functools.partial(value.__setitem__, index)


def _built(tree: ast.Module, name: str, scope: dict):
    scope = dict(scope)
    try:
        flags = __future__.annotations.compiler_flag  # annotations need no imports
        code = compile(ast.fix_missing_locations(tree), _PLACE, "exec", flags, True)
        exec(code, scope)  # the learner's own definitions; this is the process of a check
    except Exception:
        return None
    answer = scope[name]
    return with_an_end(answer, _PLACE) if inspect.isfunction(answer) else answer


def _parsed(text: str, **parts: ast.AST) -> ast.expr:
    """An expression from a text, in which the names of `parts` are replaced by these nodes."""
    texts = {name: f"({ast.unparse(part)})" for name, part in parts.items()}
    return ast.parse(text.format(**texts), mode="eval").body


def _unparsed(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.expr) else ""


def _with(node, **fields):
    """A copy of a node, in which these fields are other ones."""
    new = copy.copy(node)
    vars(new).update(fields)
    return new


def _with_entry(node, field: str, number: int, entry):
    """A copy of a node, in which one entry of a list is another one."""
    entries = [*getattr(node, field)]
    entries[number] = entry
    return _with(node, **{field: entries})


def _calls(node, *names: str) -> bool:
    """Whether the node calls a function or a method with one of these names."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
    return name in names


def _minus_zero(node):
    if not isinstance(node, ast.Slice):
        return
    for field, all_of_it in ("upper", "None"), ("lower", "1 << 40"):
        end = getattr(node, field)
        is_negative = isinstance(end, ast.UnaryOp) and isinstance(end.op, ast.USub)
        if is_negative and not isinstance(end.operand, ast.Constant):
            parts = {"lower": node.lower, "upper": node.upper, "step": node.step}
            yield ast.Slice(**parts | {field: _parsed(f"{{end}} or {all_of_it}", end=end)})


def _of_nothing(node):
    if _calls(node, "max", "min") and isinstance(node.func, ast.Name) and len(node.args) == 1:
        for default in "0", "None":
            keyword = ast.keyword("default", _parsed(default))
            yield ast.Call(node.func, node.args, [*node.keywords, keyword])


def _set_for_an_order(node):
    if _calls(node, "set") and node.args:
        yield _parsed("dict.fromkeys({all})", all=node.args[0])
    if isinstance(node, ast.SetComp):
        yield _parsed("dict.fromkeys({all})", all=ast.ListComp(node.elt, node.generators))
    if isinstance(node, ast.Set):
        yield _parsed("dict.fromkeys({all})", all=ast.List(node.elts, ast.Load()))
    if _calls(node, "list", "tuple") and node.args:
        yield ast.Call(node.func, [_parsed(_IN_ORDER, all=node.args[0])], [])
    if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load):
        yield ast.Starred(_parsed(_IN_ORDER, all=node.value), node.ctx)
    if isinstance(node, ast.For):
        yield _with(node, iter=_parsed(_IN_ORDER, all=node.iter))
    for number, each in enumerate(getattr(node, "generators", ())):
        ordered = _with(each, iter=_parsed(_IN_ORDER, all=each.iter))
        yield _with_entry(node, "generators", number, ordered)


def _first_of_equals(node):
    """Looks a loop's entry up in the list that it goes through, by its place instead."""
    generators = getattr(node, "generators", ())
    for number, loop in enumerate([node] if isinstance(node, ast.For) else generators):
        if not isinstance(loop.target, ast.Name):
            continue
        looked_up = f"{ast.unparse(loop.iter)}.index({loop.target.id})"
        found = [each for each in ast.walk(node) if _unparsed(each) == looked_up]
        counted = _with(
            loop,
            target=ast.Tuple([ast.Name(_PLACE_NAME, ast.Store()), loop.target], ast.Store()),
            iter=_parsed("enumerate({all})", all=loop.iter),
        )
        new = copy.deepcopy(
            counted if loop is node else _with_entry(node, "generators", number, counted)
        )
        for each, put in [*_places(new)]:
            if _unparsed(each) == looked_up:
                put(_parsed(_PLACE_NAME))
        if found:
            yield _with(new, about=found[0])


def _is_mutable(node) -> bool:
    """Whether it makes a list or another object that can be changed. `[0] * n` does too."""
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    parts = (node.left, node.right) if is_product else (node,)
    return any(isinstance(part, _MUTABLE) for part in parts)


def _one_object(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for several, number in (node.left, node.right), (node.right, node.left):
            elements = several.elts if isinstance(several, ast.List) else []
            if len(elements) == 1 and _is_mutable(elements[0]):
                parts = {"one": elements[0], "number": number}
                yield _parsed("[{one} for _ in range({number})]", **parts)
    if _calls(node, "fromkeys") and len(node.args) == 2:
        keys, one = node.args
        yield _parsed("{{key: {one} for key in {keys}}}", keys=keys, one=one)


def _true_tuple(node):
    if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
        yield ast.Assert(node.test.elts[0], *node.test.elts[1:2])


def _never_read(node):
    if isinstance(node, ast.Expr):
        name = ast.unparse(getattr(node.value, "func", node))
        if isinstance(node.value, ast.GeneratorExp) or name in _LAZY:
            yield ast.Expr(_parsed("list({all})", all=node.value))


def _read_once(node):
    if isinstance(node, ast.GeneratorExp) or _calls(node, *_READ_ONCE):
        yield _parsed("list({all})", all=node)


def _squeezed(node):
    if _calls(node, "squeeze") and not node.args and isinstance(node.func, ast.Attribute):
        for text in "{one}", "{one}.squeeze(-1)", "{one}.squeeze(0)", "{one}.squeeze(1)":
            yield _parsed(text, one=node.func.value)


def _texts_in_order(node):
    if _calls(node, "sorted", "max", "min", "sort"):
        rest = [keyword for keyword in node.keywords if keyword.arg != "key"]
        key = ast.keyword("key", _parsed("int"))
        yield ast.Call(node.func, node.args, [*rest, key])
        if len(rest) < len(node.keywords) and ast.unparse(node.keywords[0].value) == "str":
            yield ast.Call(node.func, node.args, rest)


def _numbers_as_mask(node):
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        index = _parsed("{mask}.bool()", mask=node.slice)
        yield ast.Subscript(node.value, index, node.ctx)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield _parsed("~{mask}.bool()", mask=node.operand)


def _in_32_bits(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.LShift):
        yield ast.BinOp(_parsed("{one}.long()", one=node.left), node.op, node.right)
        yield ast.BinOp(node.left, node.op, _parsed("{one}.long()", one=node.right))
    if isinstance(node, ast.Attribute) and node.attr in _SHORT:
        yield ast.Attribute(node.value, _SHORT[node.attr], node.ctx)


def _in_floats(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield ast.BinOp(node.left, ast.FloorDiv(), node.right)


def _other_division(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVISIONS):
        for operator in _DIVISIONS:
            if not isinstance(node.op, operator):
                yield ast.BinOp(node.left, operator(), node.right)
        yield _parsed("-(-{left} // {right})", left=node.left, right=node.right)


def _other_stride(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        product, rest = node.left, node.right
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
            parts = {"one": product.left, "other": product.right, "rest": rest}
            yield _parsed("{rest} * {other} + {one}", **parts)
            yield _parsed("{one} * {rest} + {other}", **parts)


def _of_all(node):
    """A maximum or a sum of a whole tensor."""
    if not _calls(node, *_OVER_ALL) or not isinstance(node.func, ast.Attribute):
        return
    given = [*node.args]
    if ast.unparse(node.func.value) != "torch":
        given.insert(0, node.func.value)
    if len(given) == 1 and not node.keywords:
        for dimension in "-1, keepdim=True", "-1", "0":
            text = f"{{tensor}}.{_OVER_ALL[node.func.attr]}({dimension})"
            yield _parsed(text, tensor=given[0])


def _upside_down(node):
    if _calls(node, "exp") and node.args and isinstance(node.args[0], ast.BinOp):
        difference = node.args[0]
        if isinstance(difference.op, ast.Sub):
            turned = ast.BinOp(difference.right, ast.Sub(), difference.left)
            yield ast.Call(node.func, [turned, *node.args[1:]], node.keywords)


def _edge(node):
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER_EDGE:
        other = _OTHER_EDGE[type(node.ops[0])]()
        yield ast.Compare(node.left, [other, *node.ops[1:]], node.comparators)


def _one_way(node):
    """A condition that is always true, or never."""
    for always in map(ast.Constant, (True, False)):
        if isinstance(node, ast.If | ast.IfExp):
            yield _with(node, test=always)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Compare):
            yield _with(node, value=always)
        for number, _ in enumerate(node.values if isinstance(node, ast.BoolOp) else ()):
            yield _with_entry(node, "values", number, always)
        for number, loop in enumerate(getattr(node, "generators", ())):
            for place, condition in enumerate(loop.ifs):
                others = _with_entry(loop, "ifs", place, always)
                yield _with(_with_entry(node, "generators", number, others), about=condition)


def _one_off(node):
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    if is_sum and isinstance(node.right, ast.Constant) and node.right.value == 1:
        yield node.left
    if _calls(node, "range") and node.args:
        end = min(len(node.args), 2) - 1
        for text in "{end} + 1", "{end} - 1":
            changed = [*node.args]
            changed[end] = _parsed(text, end=node.args[end])
            yield ast.Call(node.func, changed, [])


def _needless(node):
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Expr | ast.AugAssign) and not is_text:
        yield ast.Pass()


def _swapped(node):
    body = getattr(node, "body", None)
    for index in range(1, len(body) if isinstance(body, list) else 0):
        if isinstance(body[index], _LEAVES):
            continue
        new = copy.copy(node)
        new.body = [*body[: index - 1], body[index], body[index - 1], *body[index + 1 :]]
        new.about = body[index - 1]
        yield new


KEPT = "What one call leaves here is still there in the next one."
# Slug, words, and a function that makes the changes of a node. The traps come first.
TRAPS = {
    "minus-zero": ("What is -0? Look at a case where that number is 0.", _minus_zero),
    "nothing-to-compare": ("What is the largest, or the least, of nothing?", _of_nothing),
    "order-of-a-set": (
        "A set has no order. Where does the result's come from?",
        _set_for_an_order,
    ),
    "first-of-equals": (
        "`index` finds the first of several equal ones. In which place is this one?",
        _first_of_equals,
    ),
    "one-object-in-all-places": (
        "One and the same object is in each place, so a change to one is a change to all.",
        _one_object,
    ),
    "assert-of-a-tuple": (
        "The brackets hold a tuple, and that is true whatever its parts are.",
        _true_tuple,
    ),
    "never-read": (
        "This does nothing until something reads its results. What reads them here?",
        _never_read,
    ),
    "read-once": (
        "This computes nothing until something reads it, and it can be read only once. After "
        "that it is empty.",
        _read_once,
    ),
    "squeeze-takes-all": (
        "squeeze() takes away each dimension of size 1, also one that has another size in "
        "other cases.",
        _squeezed,
    ),
    "texts-in-order": ("As texts, 10 comes before 9. Compare the numbers.", _texts_in_order),
    "numbers-as-mask": (
        "As an index, 0 and 1 are places, and the opposite of 1 is -2. A mask is of booleans.",
        _numbers_as_mask,
    ),
    "float-for-a-quotient": (
        "`/` computes with floats, which are rounded where they are large. Is a whole number "
        "meant?",
        _in_floats,
    ),
    "too-few-bits": ("This, or what is made of it, does not fit into 32 bits.", _in_32_bits),
}
OTHERS = {
    "edge-of-a-comparison": ("What if both sides are equal?", _edge),
    # before the rules that change a number in a condition: they may make it always true too
    "one-way-for-all": (
        "Make a condition here always true, or always false: with one of the two, every case "
        "that is tried is right. Which one?",
        _one_way,
    ),
    "other-division": (
        "Do you need the whole part of the quotient, the next whole number, or what is left?",
        _other_division,
    ),
    "other-stride": (
        "Which number counts steps, how long is a step, and what is left?",
        _other_stride,
    ),
    "all-numbers-together": (
        "This takes all numbers of a tensor together. Which ones belong together?",
        _of_all,
    ),
    "exponent-upside-down": (
        "Is the exponent 0 or less, as it is when the maximum is taken away?",
        _upside_down,
    ),
    "one-off": ("Is this one too many, or one too few?", _one_off),
    "needless-line": (
        "What is this line for? Look at a case where it changes something.",
        _needless,
    ),
    "order-of-lines": ("Which comes first, this line or the next one?", _swapped),
}
RULES = [(slug, *rule) for slug, rule in (TRAPS | OTHERS).items()]
# Traps that leave out what a line seems to do, as other mistakes may.
HIDDEN = {"assert-of-a-tuple", "never-read", "one-object-in-all-places"}
