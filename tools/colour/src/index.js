/* Gives JupyterLab's Python the C++ in its strings, and the lessons' pictures its theme. */

import { IEditorLanguageRegistry } from '@jupyterlab/codemirror';

import { withCpp } from './language.js';
import './style.css';

const IN_NOTEBOOK = 'text/x-ipython';
const IN_FILE = 'text/x-python';

export default {
  id: 'paged-attention-course-colour:plugin',
  description: 'Shows C++ in the strings of Python cells in colour, and pictures in a dark theme.',
  autoStart: true,
  requires: [IEditorLanguageRegistry],
  activate(app, languages) {
    for (const mime of [IN_NOTEBOOK, IN_FILE]) {
      const python = languages.findByMIME(mime, true);
      if (python) {
        addCpp(python, mime === IN_NOTEBOOK);
      }
    }
  }
};

/** The registry takes no second language for a name, so its Python is loaded with C++. */
function addCpp(python, inNotebook) {
  const load = python.load.bind(python);
  const change = support => (python.support = withCpp(support, inNotebook));
  let changed = python.support && Promise.resolve(change(python.support));
  python.load = () => {
    changed ??= load().then(change);
    changed.catch(() => (changed = null)); // so that it is tried again
    return changed;
  };
}
