/* Python whose strings with C++ are parsed as C++: for colours, brackets and indentation. */

import { cppLanguage } from '@codemirror/lang-cpp';
import {
  LanguageSupport,
  continuedIndent,
  delimitedIndent,
  indentNodeProp
} from '@codemirror/language';
import { parseMixed } from '@lezer/common';
import { styleTags, tags } from '@lezer/highlight';

import { editing } from './editing.js';
import { cppText } from './texts.js';

// The grammar is of C++ alone. It reads a word of CUDA as the word of C++ that may be in the
// same places.
const CUDA = new Map([
  ['__global__', 'inline'],
  ['__device__', 'inline'],
  ['__host__', 'inline'],
  ['__forceinline__', 'inline'],
  ['__noinline__', 'inline'],
  ['__shared__', 'static'],
  ['__constant__', 'static'],
  ['__restrict__', '__restrict']
]);

const cppParser = cppLanguage.parser.configure({
  props: [
    indentNodeProp.add({
      // as .clang-format has it: a statement goes on four columns further in, and what is in
      // braces is two further in
      'Declaration ExpressionStatement FieldDeclaration ReturnStatement': continuedIndent({
        except: /^{/,
        units: 2
      }),
      'DeclarationList EnumeratorList FieldDeclarationList InitializerList': delimitedIndent({
        closing: '}'
      })
    }),
    // JupyterLab has no colour for types; these get the one that `int` has in Python.
    styleTags({ 'PrimitiveType TypeSize': tags.standard(tags.variableName) })
  ]
});
// These functions give a word's kind. The grammar has no setting for them.
cppParser.specializers = cppParser.specializers.map(
  kind => (word, stack) => kind(CUDA.get(word) ?? word, stack)
);

const wrap = parseMixed((node, input) => {
  const part = cppText(node, (from, to) => input.read(from, to));
  return part && { parser: cppParser, overlay: [part] };
});

/**
 * Python's support with C++ in it.
 *
 * @param support JupyterLab's own for Python
 * @param inNotebook whether lines are counted from the beginning of a string
 */
export function withCpp(support, inNotebook) {
  const language = support.language.configure({ wrap });
  return new LanguageSupport(language, [support.support, editing(inNotebook)]);
}
