// The panels of a kernel's run. lessons_lib/drawing/player/kernel.py says what their values are.

// A box: a short text on its shade. The ones that a step is about have a thick edge.
function makeBox(panel, name, context) {
  const node = make("div", "box", { role: "gridcell", tabindex: "-1" });
  const nouns = panel.noun.split(", ");
  const about = nouns.length > 1
    ? name.split(".").map((part, place) => `${nouns[place]} ${part}`).join(", ")
    : `${panel.noun} ${name}`;
  const box = { node, target: null };
  box.draw = (value) => {
    const [text, shade, now, tells] = value ?? ["", -1, false, ""];
    const [background, ink] = panel.shades[shade] ?? ["", ""];
    node.textContent = text;
    node.style.background = background;
    node.style.color = ink;
    node.classList.toggle("now", now);
    node.setAttribute("aria-label", `${about}, ${tells || text || panel.empty}`);
  };
  context.cells.push(box);
  return box;
}

PANELS.boxes = (panel, context) => {
  const parts = new Map();
  const lines = []; // for the arrow keys: the rows of all groups side by side
  const groups = panel.groups.map((group) => {
    const rows = group.rows.map(([head, names], row) => {
      const boxes = names.map((name) => {
        const box = makeBox(panel, name, context);
        parts.set(`${panel.id}/${name}`, box.draw);
        return box.node;
      });
      (lines[row] ??= []).push(...boxes);
      const label = head ? [make("span", "head", { role: "rowheader" }, [head])] : [];
      return make("div", "line", { role: "row" }, [...label, ...boxes]);
    });
    const columns = group.columns.map((name) => make("small", "", {}, [name]));
    if (columns.length) rows.push(make("div", "line", { "aria-hidden": "true" }, columns));
    const title = group.title ? [make("div", "group-title", { "aria-hidden": "true" }, [group.title])] : [];
    const node = make("div", "group", { role: "rowgroup", "aria-label": group.title || panel.title }, [...title, ...rows]);
    node.style.setProperty("--columns", Math.max(...group.rows.map(([, names]) => names.length)));
    if (group.rows.some(([head]) => head)) node.classList.add("headed");
    return node;
  });
  const grid = make("div", "groups", { role: "grid", "aria-label": panel.title }, groups);
  grid.style.setProperty("--wide", panel.wide);
  moveInside(grid, lines);
  return { node: grid, parts };
};

PANELS.code = (panel) => {
  const parts = new Map();
  const texts = panel.texts.map(([name, lines]) => {
    const nodes = lines.map(([number, line]) => {
      const mark = make("b");
      const shown = make("small", "", { "aria-hidden": "true" }, [number || ""]);
      const node = make("div", "source", {}, [mark, shown, make("span", "", {}, [line])]);
      if (number) {
        parts.set(`${panel.id}/${name} ${number}`, (words) => {
          node.classList.toggle("now", Boolean(words));
          mark.textContent = words ?? "";
        });
      }
      return node;
    });
    return make("div", "text", { role: "group", "aria-label": name }, [make("div", "group-title", {}, [name]), ...nodes]);
  });
  return { node: make("div", "texts", { role: "group", "aria-label": panel.title }, texts), parts };
};
