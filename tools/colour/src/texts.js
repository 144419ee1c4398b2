/* Which strings of a Python cell are C++ or CUDA.

The rule: a string is C++ if it is raw, has three quotes on each side (r"""…"""), is no docstring,
and one of its lines begins with `#include`, `#define`, `#pragma` or `#if`, or begins with a word
of C++ or CUDA and ends with `;` or `{`.

A string that is not raw is not taken: Python changes the backslashes in it, and so its lines are
not those that a compiler counts. */

const WORDS = [
  'auto bool char class const constexpr double enum extern float for if inline int long',
  'namespace return short signed static struct switch template typedef union unsigned using',
  'void volatile while'
]
  .join(' ')
  .replaceAll(' ', '|');
const TYPES = 'size_t|u?int(8|16|32|64)_t|std::\\w+|__\\w+__';

const OPENING = /^[bB]?[rR][bB]?("""|''')/;
const DIRECTIVE = /^[ \t]*#(include|define|pragma|if(n?def)?)\b/m;
const STATEMENT = new RegExp(`^[ \\t]*(${WORDS}|${TYPES})\\b.*[;{][ \\t]*(//.*)?$`, 'm');

/**
 * The part of a string that is C++: what is between its quotes.
 *
 * @param node a node of Python's syntax tree
 * @param read gives the text of the cell from one position to another
 * @returns {from, to}, positions in the cell; null if the node is no such string
 */
export function cppText(node, read) {
  if (node.name !== 'String' || node.node.parent?.name === 'ExpressionStatement') {
    return null;
  }
  const opening = OPENING.exec(read(node.from, Math.min(node.from + 5, node.to)));
  if (!opening) {
    return null;
  }
  const from = node.from + opening[0].length;
  // While it is typed, a string may have no end yet.
  const isClosed = node.to - 3 >= from && read(node.to - 3, node.to) === opening[1];
  const to = isClosed ? node.to - 3 : node.to;
  const text = read(from, to);
  return from < to && (DIRECTIVE.test(text) || STATEMENT.test(text)) ? { from, to } : null;
}
