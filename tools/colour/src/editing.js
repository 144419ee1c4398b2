/* What an editor does in a string with C++ besides colours: line numbers and indentation. */

import { indentUnit, syntaxTree } from '@codemirror/language';
import { Compartment, Prec, StateField } from '@codemirror/state';
import { EditorView, lineNumbers } from '@codemirror/view';

import { cppText } from './texts.js';

/** The C++ of a cell, as {from, to} in the order of the text. */
const cppTexts = StateField.define({
  create: find,
  update(before, transaction) {
    const isSame =
      !transaction.docChanged && syntaxTree(transaction.startState) === syntaxTree(transaction.state);
    return isSame ? before : find(transaction.state);
  }
});

function find(state) {
  const found = [];
  syntaxTree(state).iterate({
    enter(node) {
      const part = cppText(node, (from, to) => state.sliceDoc(from, to));
      if (part) {
        found.push(part);
      }
      return node.name !== 'String'; // what is in a string has been parsed as C++
    }
  });
  return found;
}

const INDENTATION = '  '; // as in .clang-format

/** In C++ an indentation is two spaces, whatever it is in Python. */
const indentation = Prec.highest(
  indentUnit.computeN([cppTexts, 'selection'], state => {
    const at = state.selection.main.head;
    const isCpp = state.field(cppTexts).some(part => part.from <= at && at <= part.to);
    return isCpp ? [INDENTATION] : [];
  })
);

/** The number that a message gives a line: counted in the C++ that the line begins in. */
function messageNumber(number, state) {
  if (number > state.doc.lines) {
    return String(number); // the gutter asks for the widest one
  }
  const begin = state.doc.line(number).from;
  const part = state.field(cppTexts, false)?.find(({ from, to }) => from < begin && begin <= to);
  return String(part ? number - state.doc.lineAt(part.from).number + 1 : number);
}

const numbers = new Compartment();

/** Shows line numbers in cells with C++, also where JupyterLab shows none. */
const numbersWhereCpp = EditorView.updateListener.of(({ view, state, startState, docChanged }) => {
  const after = state.field(cppTexts);
  const before = startState.field(cppTexts, false) ?? [];
  const areShown = numbers.get(state)?.length > 0;
  // A change of the text renews the numbers that are shown; a tree that is ready later does not.
  if (areShown !== after.length > 0 || (areShown && !docChanged && before !== after)) {
    const content = after.length ? lineNumbers({ formatNumber: messageNumber.bind(null) }) : [];
    requestAnimationFrame(() => view.dispatch({ effects: numbers.reconfigure(content) }));
  }
});

/**
 * The extension of an editor.
 *
 * @param inNotebook whether it has line numbers; a file keeps its own
 */
export function editing(inNotebook) {
  return [cppTexts, indentation, inNotebook ? [numbers.of([]), numbersWhereCpp] : []];
}
