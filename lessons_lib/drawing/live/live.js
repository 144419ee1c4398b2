// A player that follows, with controls. It comes after player.js; view.py has the messages.

// `send` takes a message to the kernel. Returns { take(message), restart(recording) }.
function createLive(root, { recording, controls, send }) {
  const inputs = new Map();
  const problem = make("p", "problem", { role: "alert" });
  const bar = make("div", "live-controls", { role: "group", "aria-label": "Controls" });
  const place = make("div");
  let player = null;
  let running = null; // the button of a run, while it runs

  const values = () => Object.fromEntries(
    [...inputs].map(([name, { input, read }]) => [name, read(input.value)]),
  );
  const ask = (name) => send({ do: name, values: values() });
  const stop = () => {
    if (running) running.textContent = running.dataset.label;
    running = null;
  };

  const makeButton = ({ kind, name, label }) => {
    const button = make("button", "", { type: "button", "data-name": name, "data-label": label }, [label]);
    button.addEventListener("click", () => {
      const stops = running === button;
      stop();
      if (stops) return;
      if (kind === "run") {
        running = button;
        button.textContent = "Pause";
      }
      ask(name);
    });
    return button;
  };
  const makeInput = ({ kind, name, label, value, options, begins }) => {
    const isChoice = kind === "choice";
    const input = isChoice
      ? make("select", "", {}, options.map((each) => make("option", "", {}, [each])))
      : make("input", "", { type: "number" });
    input.name = name;
    input.value = value;
    inputs.set(name, { input, read: isChoice ? String : (text) => Math.trunc(Number(text)) });
    if (begins) input.addEventListener("change", () => { stop(); ask("begin"); });
    return make("label", "", {}, [label, input]);
  };
  bar.append(...controls.map((each) =>
    ["button", "run"].includes(each.kind) ? makeButton(each) : makeInput(each)));

  // A click on a block chooses it, where a block can be chosen.
  place.addEventListener("click", (event) => {
    const chosen = inputs.get("block");
    const name = event.target.closest("[aria-label=pool] [role=gridcell]")?.querySelector("small");
    if (chosen && name) chosen.input.value = name.textContent;
  });

  const live = {
    restart(next) {
      const node = make("div", "pool-player");
      place.replaceChildren(node);
      player = createPlayer(node, structuredClone(next));
      send({ have: player.count });
    },

    take(message) {
      if (message.steps) {
        const unheard = message.steps.slice(player.count - message.first);
        if (message.first > player.count) send({ have: player.count }); // some were not heard
        else unheard.forEach((step) => player.add(step));
        player.show(player.count - 1);
        return;
      }
      problem.textContent = message.problem;
      for (const [name, { input }] of inputs) {
        if (document.activeElement !== input) input.value = message.values[name];
      }
      if (message.ended) return stop();
      const again = running;
      if (again) setTimeout(() => { if (running === again) ask(again.dataset.name); }, 400);
    },
  };
  root.classList.add("live", "pool-player"); // for its colours
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.append(bar, problem, place);
  live.restart(recording);
  return live;
}

export default {
  render({ model, el }) {
    const live = createLive(el, {
      recording: model.get("recording"),
      controls: model.get("controls"),
      send: (message) => model.send(message),
    });
    const begin = () => live.restart(model.get("recording"));
    model.on("msg:custom", live.take);
    model.on("change:recording", begin);
    const stills = document.querySelectorAll(`[data-live="${model.get("lesson")}"]`);
    stills.forEach((still) => { still.hidden = true; });
    return () => {
      model.off("msg:custom", live.take);
      model.off("change:recording", begin);
    };
  },
};
