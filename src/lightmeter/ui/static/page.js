// The page of `lightmeter ui`: shows one widget at a time, with its model at the other end of a WebSocket.

const token = new URLSearchParams(location.search).get("token") ?? "";
const RETRY_MS = 1000;

/** A widget's model with the interface of anywidget's: get, set, save_changes, on, off, send. */
class WebModel {
  #state = {};
  #changes = {};
  #listeners = new Map();
  #unsent = [];
  #socket;
  #closed = false;

  constructor(view, onConnection) {
    this.view = view;
    this.onConnection = onConnection;
    this.ready = new Promise((resolve) => (this.isReady = resolve));
    this.#open();
  }

  #open() {
    const url = new URL(`/views/${this.view}`, location.href);
    url.protocol = "ws:";
    url.searchParams.set("token", token);
    this.#socket = new WebSocket(url);
    this.#socket.onopen = () => {
      this.onConnection(true);
      // A new connection has a new view-model: give it what this page had set.
      if (Object.keys(this.written).length) this.#socket.send(JSON.stringify({ state: this.written }));
      for (const text of this.#unsent.splice(0)) this.#socket.send(text);
    };
    this.#socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    this.#socket.onclose = () => {
      if (this.#closed) return;
      this.onConnection(false);
      setTimeout(() => this.#closed || this.#open(), RETRY_MS);
    };
  }

  written = {};

  #receive({ state, custom }) {
    if (state !== undefined) {
      Object.assign(this.#state, state);
      this.isReady();
      for (const name of Object.keys(state)) this.#emit(`change:${name}`);
    }
    if (custom !== undefined) this.#emit("msg:custom", custom);
  }

  #emit(event, value) {
    for (const action of [...(this.#listeners.get(event) ?? [])]) action(value);
  }

  #send(message) {
    const text = JSON.stringify(message);
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text);
    else this.#unsent.push(text);
  }

  get(name) {
    return this.#state[name];
  }

  set(name, value) {
    this.#state[name] = value;
    this.#changes[name] = value;
    this.#emit(`change:${name}`);
  }

  save_changes() {
    const state = this.#changes;
    this.#changes = {};
    Object.assign(this.written, state);
    if (this.#socket.readyState === WebSocket.OPEN) this.#send({ state });
  }

  send(custom) {
    this.#send({ custom });
  }

  on(event, action) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), action]);
  }

  off(event, action) {
    const rest = (this.#listeners.get(event) ?? []).filter((other) => action !== undefined && other !== action);
    this.#listeners.set(event, rest);
  }

  close() {
    this.#closed = true;
    this.#socket.close();
  }
}

const main = document.getElementById("view");
const nav = document.querySelector("nav");
const connection = document.getElementById("connection");
let closeView = () => {};
let shows = 0;

function addStyle(view) {
  const id = `style-${view}`;
  if (document.getElementById(id)) return;
  const link = Object.assign(document.createElement("link"), { id, rel: "stylesheet" });
  link.href = `/static/views/${view}.css?token=${encodeURIComponent(token)}`;
  document.head.append(link);
}

async function show(views) {
  const number = ++shows;
  const view = Object.hasOwn(views, location.hash.slice(1)) ? location.hash.slice(1) : Object.keys(views)[0];
  closeView();
  main.replaceChildren();
  for (const link of nav.children) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${views[view]} - lightmeter`;
  addStyle(view);
  const model = new WebModel(view, (isConnected) => {
    connection.textContent = isConnected ? "" : "Not connected. Is `lightmeter ui` still running?";
  });
  closeView = () => model.close();
  const widget = (await import(`/static/views/${view}.js?token=${encodeURIComponent(token)}`)).default;
  await model.ready;
  if (number !== shows) return;
  await widget.initialize?.({ model });
  const cleanUp = await widget.render({ model, el: main });
  closeView = () => {
    cleanUp?.();
    model.close();
  };
}

const views = await (await fetch(`/views?token=${encodeURIComponent(token)}`)).json();
for (const [view, title] of Object.entries(views)) {
  nav.append(Object.assign(document.createElement("a"), { href: `#${view}`, textContent: title }));
}
addEventListener("hashchange", () => show(views));
await show(views);
