// Functions that all widgets use. A widget's module is this file and its own files as one text (see ui/assets.py).

/** Create an HTML element. Attributes named `on…` are event listeners; null, undefined and false leave one out. */
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element, with the same arguments as `h`. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  // Texts become text nodes: no data is ever parsed as HTML.
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Keep JupyterLab from acting on keys that are pressed inside `root`: its command mode would take the arrow keys of a slider.
 *
 * JupyterLab goes from the focused element upwards and stops at the first one that has the attribute or that the selector
 * of a shortcut matches. Some selectors match any focused element, so the attribute must be on that element itself.
 */
function suppressHostShortcuts(root) {
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  // JupyterLab listens on the focused field itself and cancels the line break of Enter: the field would fire no "change".
  root.addEventListener("beforeinput", (event) => event.stopPropagation(), { capture: true });
  return root;
}

/**
 * Connect a widget to its view-model in Python.
 *
 * `call(method, params)` returns a promise of the method's result; it rejects with an Error that has a `hint`.
 * `watch(names, action)` runs the action now and whenever one of the traits changes. `on(event, action)` runs it with
 * the value of each such event. `close()` removes all listeners.
 */
function connect(model) {
  const replies = new Map();
  const actions = new Map();
  const watched = [];
  const prefix = Math.random().toString(36).slice(2); // two pages of one model get each other's replies
  let calls = 0;
  const receive = (message) => {
    if (message.event !== undefined) {
      for (const action of actions.get(message.event) ?? []) action(message.value);
      return;
    }
    const reply = replies.get(message.id);
    if (reply === undefined) return;
    replies.delete(message.id);
    if (message.error === undefined) reply.resolve(message.result);
    else reply.reject(Object.assign(new Error(message.error.message), { hint: message.error.hint }));
  };
  model.on("msg:custom", receive);
  return {
    get: (name) => model.get(name),
    set(name, value) {
      model.set(name, value);
      model.save_changes();
    },
    call(method, params = {}) {
      const id = `${prefix}-${calls++}`;
      return new Promise((resolve, reject) => {
        replies.set(id, { resolve, reject });
        model.send({ id, method, params });
      });
    },
    on(event, action) {
      actions.set(event, [...(actions.get(event) ?? []), action]);
    },
    watch(names, action) {
      for (const name of names) {
        watched.push([`change:${name}`, action]);
        model.on(`change:${name}`, action);
      }
      action();
    },
    close() {
      model.off("msg:custom", receive);
      for (const [event, action] of watched) model.off(event, action);
    },
  };
}

/** Return the visible line for errors: it shows the model's trait `error` and `hint`s of rejected calls. */
function errorLine(connection) {
  const line = h("div", { class: "lm-message lm-error", role: "alert", hidden: true });
  connection.watch(["error"], () => {
    line.textContent = connection.get("error") ?? "";
    line.hidden = !line.textContent;
  });
  return line;
}

/** Return a function that runs `action` once, `delay_ms` after its last call. */
function debounce(action, delay_ms) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), delay_ms);
  };
}

/** Return a count with its noun: `1 row`, `2,000 rows`. */
function plural(count, noun, nouns = `${noun}s`) {
  return `${count.toLocaleString("en-US")} ${count === 1 ? noun : nouns}`;
}

/** Return a fraction as a percentage without decimals: `12 %`. */
function percent(fraction) {
  return `${Math.round(fraction * 100)} %`;
}
