// Plays a recording. lessons_lib/drawing/player/__init__.py says what one looks like.
//
// Each panel gives an element and, for each key that its values can have, a function that draws
// the key's value. A step calls these functions for the values that differ, and for no others.

const make = (tag, className = "", attributes = {}, children = []) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const LOOKS = 20;

// A place: its colour and pattern, how full it is, and a short text.
function makeCell(panel, name, context) {
  const text = make("b");
  const box = make("div", "box", {}, [text]);
  const node = make("div", "cell", { role: "gridcell", tabindex: "-1" }, [box]);
  if (panel.ids) node.append(make("small", "", {}, [name]));
  const cell = { node, target: null };
  const about = `${panel.noun} ${name}`;

  cell.draw = (value) => {
    const [users, filled, shows, tells] = value ?? [[], 0, "", ""];
    const names = users.map((user) => context.names[user]);
    const look = !value
      ? panel.missing
      : users.length > 1 ? "used shared" : users.length ? `used look-${users[0] % LOOKS}` : "kept";
    node.className = `cell ${look}`;
    text.textContent = !value ? panel.blank : shows || (names.length > 1 ? `×${names.length}` : names.join(""));
    if (panel.size) node.style.setProperty("--filled", filled / panel.size);
    const words = [panel.ids || !shows ? about : `${panel.noun} ${shows}`];
    if (value) words.push(names.join(" and ") || "kept for later");
    else words.push(panel.blank || "free");
    if (value && panel.size) words.push(`${filled} of ${panel.size} tokens`);
    if (tells) words.push(tells);
    node.setAttribute("aria-label", words.join(", "));
    cell.target = !panel.points ? `${panel.id}/${name}` : shows ? `${panel.points}/${shows}` : null;
  };
  return cell;
}

const unseenHead = (words) => make("span", "unseen", { role: "rowheader" }, [words]);

function cellsPanel(panel, context) {
  const longest = Math.max(...panel.rows.map((row) => row.cells.length));
  const columns = panel.columns || longest;
  const heads = panel.rows.some((row) => row.head);
  const parts = new Map();
  const lines = [];
  const grid = make("div", "grid", { role: "grid", "aria-label": panel.title });
  grid.style.setProperty("--columns", columns);
  if (panel.size) grid.style.setProperty("--size", panel.size);
  if (heads) grid.classList.add("headed");
  const queue = panel.missing === "gone";
  if (queue) grid.classList.add("queue");
  if (panel.size > 1 && panel.size <= 8) grid.classList.add("slots");
  for (const row of panel.rows) {
    for (let first = 0; first < row.cells.length; first += columns) {
      const cells = row.cells.slice(first, first + columns).map((name) => {
        const cell = makeCell(panel, name, context);
        parts.set(`${panel.id}/${name}`, cell.draw);
        context.cells.push(cell);
        if (queue) cell.node.tabIndex = 0;
        return cell;
      });
      const line = make("div", "line", { role: "row" }, cells.map((cell) => cell.node));
      if (heads) {
        const head = make("span", "head", { role: row.head ? "rowheader" : "presentation" });
        if (row.head && !first) {
          parts.set(`${panel.id}/head ${row.id}`, (words) => { head.textContent = words; });
        }
        line.prepend(head);
      } else if (queue) {
        line.prepend(unseenHead(panel.title)); // a row without cells is none
      }
      grid.append(line);
      lines.push(cells.map((cell) => cell.node));
    }
  }
  moveInside(grid, lines);
  return { node: grid, parts };
}

function lanesPanel(panel, context) {
  const share = (time) => `${(100 * time) / panel.end}%`;
  const tracks = panel.lanes.map((name) => make("div", "track", { role: "row" }, [unseenHead(name)]));
  const lines = panel.lanes.map(() => []);
  for (const [lane, start, end, kind, shows, tells, own] of panel.bars) {
    const [meaning, look] = panel.kinds[kind];
    const when = end - start === 1 && panel.unit === "step"
      ? `step ${start}` : `${panel.unit} ${start} to ${end}`;
    const words = [panel.lanes[lane], meaning, when, tells].filter(Boolean).join(", ");
    const bar = make(
      "div", `bar ${own || look}`, { role: "gridcell", tabindex: "-1", "aria-label": words }, [shows],
    );
    bar.style.left = share(start);
    bar.style.width = share(end - start);
    tracks[lane].append(bar);
    lines[lane].push(bar);
    context.cells.push({ node: bar, target: null });
  }
  const later = make("div", "later", { "aria-hidden": "true" });
  const names = make("div", "names", { "aria-hidden": "true" }, panel.lanes.map((name) => make("span", "", {}, [name])));
  const grid = make("div", "tracks", { role: "grid", "aria-label": panel.title }, tracks);
  const legend = make("div", "legend", {}, panel.kinds.filter(([, look]) => look).map(([meaning, look]) =>
    make("span", "", {}, [make("i", look), meaning])));
  moveInside(grid, lines);
  const area = make("div", "area", {}, [grid, later]);
  const parts = new Map([[`${panel.id}/now`, (now) => { later.style.left = share(now); }]]);
  return { node: make("div", "lanes", {}, [names, area, legend]), parts };
}

function numbersPanel(panel) {
  const parts = new Map();
  const items = panel.items.map(([id, words]) => {
    const number = make("b");
    const bar = make("i", "", { "aria-hidden": "true" }, [make("i")]);
    const item = make("div", "number", {}, [number, ` ${words}`, bar]);
    parts.set(`${panel.id}/${id}`, ([text, share]) => {
      number.textContent = text;
      bar.hidden = share === null;
      bar.firstChild.style.width = `${100 * (share ?? 0)}%`;
    });
    return item;
  });
  return { node: make("div", "numbers", { role: "group", "aria-label": panel.title }, items), parts };
}

const PANELS = { cells: cellsPanel, lanes: lanesPanel, numbers: numbersPanel };

// The arrow keys move the focus among a grid's places; Tab enters it once.
function moveInside(grid, lines) {
  let current = lines.flat()[0];
  if (!current) return;
  const rest = lines.flat().at(-1).tabIndex;
  current.tabIndex = 0;
  const go = (node) => {
    if (!node) return;
    current.tabIndex = rest;
    current = node;
    current.tabIndex = 0;
    current.focus();
  };
  grid.addEventListener("focusin", (event) => {
    if (event.target === current || !lines.flat().includes(event.target)) return;
    go(event.target);
  });
  grid.addEventListener("keydown", (event) => {
    const seen = lines.map((line) => line.filter((node) => node.offsetParent)).filter((line) => line.length);
    const row = seen.findIndex((line) => line.includes(event.target));
    if (row < 0) return;
    const column = seen[row].indexOf(event.target);
    const near = (line) => line?.[Math.min(column, line.length - 1)];
    const moves = {
      ArrowLeft: () => seen[row][column - 1],
      ArrowRight: () => seen[row][column + 1],
      ArrowUp: () => near(seen[row - 1]),
      ArrowDown: () => near(seen[row + 1]),
      Home: () => seen[row][0],
      End: () => seen[row].at(-1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    go(moves[event.key]());
  });
}

const same = (one, other) => one === other || JSON.stringify(one) === JSON.stringify(other);

// The values of each key: in which steps it was set, and to what.
function valuesOf(steps) {
  const history = new Map();
  steps.forEach((step, number) => {
    for (const [key, value] of Object.entries(step.set)) {
      if (!history.has(key)) history.set(key, { at: [], values: [] });
      history.get(key).at.push(number);
      history.get(key).values.push(value);
    }
  });
  return (key, step) => {
    const { at, values } = history.get(key);
    let low = 0;
    let high = at.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at[middle] <= step) low = middle;
      else high = middle;
    }
    return values[low];
  };
}

// Fills `root`. Returns { show(step), step, count, add(step) }; `add` is for a live recording.
function createPlayer(root, recording) {
  const { steps } = recording;
  const context = { names: recording.names, cells: [] };
  const parts = new Map();
  const views = recording.views.map((view) => {
    const panels = view.panels.map((panel) => {
      const made = PANELS[panel.kind](panel, context);
      made.parts.forEach((draw, key) => parts.set(key, draw));
      const caption = panel.kind === "numbers" ? [] : [make("div", "caption", { "aria-hidden": "true" }, [panel.title])];
      return make("div", "panel", {}, [...caption, made.node]);
    });
    const title = view.title ? [make("div", "view-title", {}, [view.title])] : [];
    return make("div", view.wide ? "view wide" : "view", {}, [...title, ...panels]);
  });

  const button = (words, label, action) => {
    const node = make("button", "", { type: "button", ...(label && { "aria-label": label }) }, [words]);
    node.addEventListener("click", action);
    return node;
  };
  const say = make("p", "say", { "aria-live": "polite", role: "status" });
  const told = make("p", "told", { "aria-hidden": "true" });
  const count = make("span", "count", { "aria-hidden": "true" });
  const slider = make("input", "", { type: "range", min: 0, max: steps.length - 1, value: 0, "aria-label": "Step" });
  const playing = button("", "", () => toggle());
  const controls = make("div", "controls", {}, [
    playing,
    button("‹", "One step back", () => leap(player.step - 1)),
    slider,
    button("›", "One step on", () => leap(player.step + 1)),
    count,
  ]);

  let valueAt = valuesOf(steps);
  let timer = 0;
  let pointed = null;
  let fresh = true; // nobody has moved it: it shows its still, and begins at the beginning

  const player = {
    step: -1,
    get count() { return steps.length; },

    // Shows a step, and changes only what differs from the one that is shown.
    show(step) {
      fresh = false;
      const next = Math.max(0, Math.min(steps.length - 1, step));
      const before = player.step;
      if (next === before) return offerToPlay();
      const keys = new Set();
      for (let each = Math.min(before, next) + 1; each <= Math.max(before, next); each++) {
        for (const key of Object.keys(steps[each].set)) keys.add(key);
      }
      for (const key of keys) {
        const value = valueAt(key, next);
        if (before < 0 || !same(value, valueAt(key, before))) parts.get(key)(value);
      }
      player.step = next;
      say.textContent = steps[next].say;
      slider.value = next;
      slider.setAttribute("aria-valuetext", `${next} of ${steps.length - 1}`);
      count.textContent = `${next} / ${steps.length - 1}`;
      if (!timer) offerToPlay();
      if (pointed) tell(pointed);
    },

    add(step) {
      steps.push(step);
      valueAt = valuesOf(steps);
      slider.max = steps.length - 1;
    },
  };

  const beginsAnew = () => fresh || player.step === steps.length - 1;
  const offerToPlay = () => {
    playing.textContent = player.step > 0 && beginsAnew() ? "Play from the start" : "Play";
  };
  const leap = (step) => {
    pause();
    player.show(step);
  };
  const pause = () => {
    if (!timer) return;
    clearTimeout(timer);
    timer = 0;
    offerToPlay();
    say.setAttribute("aria-live", "polite");
  };
  const goOn = () => {
    if (!root.isConnected || player.step === steps.length - 1) return pause();
    player.show(player.step + 1);
    timer = setTimeout(goOn, recording.pace);
  };
  const toggle = () => {
    if (timer) return pause();
    if (beginsAnew()) player.show(0);
    playing.textContent = "Pause";
    say.setAttribute("aria-live", "off"); // no sentence would be read to its end
    timer = setTimeout(goOn, recording.pace / 3);
  };

  const tell = (node) => {
    pointed = node;
    const cell = node && context.cells.find((each) => each.node === node);
    const words = node?.getAttribute("aria-label") ?? "";
    told.textContent = words && words[0].toUpperCase() + words.slice(1);
    for (const each of context.cells) {
      const lit = Boolean(cell) && (each === cell || (each.target && each.target === cell.target));
      each.node.classList.toggle("lit", lit);
    }
  };
  const pointAt = (event) => {
    const node = event.target.closest?.("[role=gridcell]");
    if (node !== pointed) tell(node);
  };
  root.addEventListener("mouseover", pointAt);
  root.addEventListener("focusin", pointAt);
  root.addEventListener("mouseleave", () => tell(null));

  slider.addEventListener("input", () => leap(Number(slider.value)));
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const press = event.target.matches("button, summary") && event.key === " ";
    const actions = {
      " ": toggle,
      ArrowLeft: () => leap(player.step - 1),
      ArrowDown: () => leap(player.step - 1),
      ArrowRight: () => leap(player.step + 1),
      ArrowUp: () => leap(player.step + 1),
      Home: () => leap(0),
      End: () => leap(steps.length - 1),
    };
    if (press || !(event.key in actions)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });

  root.setAttribute("role", "group");
  root.setAttribute("aria-label", recording.title);
  root.prepend(
    make("div", "title", { "aria-hidden": "true" }, [recording.title]),
    make("div", "views", {}, views),
    told,
    say,
    controls,
  );
  player.show(recording.still ?? 0);
  fresh = true;
  offerToPlay();
  root.player = player;
  return player;
}

// Starts the players of a page that wait for it. Each output brings this script with it.
function startPlayers(script) {
  const page = script?.getRootNode() ?? document;
  for (const root of page.querySelectorAll(".pool-player:not([data-started])")) {
    const data = root.querySelector("script[type='application/json']");
    if (!data) continue;
    const recording = JSON.parse(data.textContent);
    const words = root.querySelectorAll("details li");
    recording.steps = recording.steps.map((set, number) => ({ say: words[number].textContent, set }));
    createPlayer(root, recording);
    root.setAttribute("data-started", "");
  }
}
