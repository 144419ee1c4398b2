"""A Sphinx extension: formulas become MathML, so that a page needs no script and no network.

It also names a heading in links as JupyterLab does, because the lessons' links are written
for JupyterLab. It runs in the site's environment, which does not have the course's packages.
"""

from latex2mathml.converter import convert


def heading_anchor(title: str) -> str:
    """The anchor of a heading in a link: `Sums in 16 bits` gives Sums-in-16-bits."""
    return title.strip().replace(" ", "-")


def as_mathml(formula: str, display: str) -> str:
    """LaTeX as MathML. display: "inline" or "block"."""
    # The converter leaves the backslash of \_ in place inside \text{…}.
    return convert(formula, display=display).replace(r"\_", "_")


def in_a_line(writer, node):
    writer.body.append(as_mathml(node.astext(), "inline"))
    raise _nothing_more()


def in_a_paragraph(writer, node):
    writer.body.append(f'<div class="math">{as_mathml(node.astext(), "block")}</div>\n')
    raise _nothing_more()


def _nothing_more():
    from docutils.nodes import SkipNode  # says that the formula's text has been written

    return SkipNode()


def setup(app):
    app.add_html_math_renderer("mathml", (in_a_line, None), (in_a_paragraph, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
