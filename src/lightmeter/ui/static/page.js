// The page of `lightmeter ui`: shows one widget at a time, with its model at the other end of a WebSocket.

const token = new URLSearchParams(location.search).get("token") ?? "";
const RETRY_MS = 1000;
const VIEW_FAILED = 4000; // web_server.py closes with this code if it cannot create the view
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024; // web_server.py ends the connection at a longer message
const TOO_LONG = "The last change is too long to be sent. It has no effect.";
const NOT_CONNECTED = "Not connected. Is `lightmeter ui` still running?";

const NOT_KEPT = ["consent"]; // a reload does not agree to a price

// One run folder has one token at one port; its hash, not the token, is the key of what a tab keeps for a run.
const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(token));
const runKey = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const isTooLong = (text) => new TextEncoder().encode(text).length > MAX_MESSAGE_BYTES;

/** Return what this tab had set in a view before the page was loaded again. */
function readWritten(view) {
  try {
    const written = JSON.parse(sessionStorage.getItem(`${runKey} ${view}`)) ?? {};
    return isTooLong(JSON.stringify({ state: written })) ? {} : written;
  } catch {
    return {};
  }
}

function keepWritten(view, written) {
  const kept = Object.fromEntries(Object.entries(written).filter(([name]) => !NOT_KEPT.includes(name)));
  try {
    sessionStorage.setItem(`${runKey} ${view}`, JSON.stringify(kept));
  } catch {
    // The browser has no room: a reload starts anew.
  }
}

/** Return why the server refuses a connection, as a sentence. */
async function whyRefused() {
  try {
    const { status } = await fetch(`/views?token=${encodeURIComponent(token)}`);
    if (status === 403) return "`lightmeter ui` was started again: open the address that it printed.";
    return status === 503 ? "Too many pages are open. Close some." : NOT_CONNECTED;
  } catch {
    return NOT_CONNECTED;
  }
}

/** A widget's model with the interface of anywidget's: get, set, save_changes, on, off, send. */
class WebModel {
  #state = {};
  #changes = {};
  #written; // the values of the traits that the page writes, once they differ from the first ones
  #writes = []; // the names of these traits
  #listeners = new Map();
  #unsent = [];
  #asked = new Set();
  #socket;
  #closed = false;
  #connections = 0;
  #isFirst = true;

  constructor(view, { onState, onReconnect, onFatal }) {
    this.view = view;
    this.#written = readWritten(view);
    this.onState = onState;
    this.onReconnect = onReconnect;
    this.onFatal = onFatal;
    this.ready = new Promise((resolve) => (this.isReady = resolve));
    this.#open();
  }

  #open() {
    const url = new URL(`/views/${this.view}`, location.href);
    url.protocol = "ws:";
    url.searchParams.set("token", token);
    let isOpen = false;
    this.#socket = new WebSocket(url);
    this.#socket.onopen = () => {
      isOpen = this.#isFirst = true;
      this.onState("");
      // A new connection has a new view-model: give it what this page had set.
      if (Object.keys(this.#written).length) this.#socket.send(JSON.stringify({ state: this.#written }));
      for (const text of this.#unsent.splice(0)) this.#socket.send(text);
    };
    this.#socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    this.#socket.onclose = async ({ code }) => {
      if (this.#closed) return;
      this.#loseRequests();
      if (code !== VIEW_FAILED) this.onState(isOpen ? NOT_CONNECTED : await whyRefused());
      setTimeout(() => this.#closed || this.#open(), code === VIEW_FAILED ? 3 * RETRY_MS : RETRY_MS);
    };
  }

  /** Reject the calls whose answers were lost with the connection. */
  #loseRequests() {
    const error = { message: "The connection was lost before the answer came.", hint: "" };
    for (const id of this.#asked) this.#emit("msg:custom", { id, error });
    this.#asked.clear();
  }

  #receive({ writes, state, custom, fatal }) {
    if (writes !== undefined) this.#writes = writes;
    if (fatal !== undefined) this.onFatal(fatal);
    if (state !== undefined) {
      // The first state of a new view-model is older than what this page has set.
      Object.assign(this.#state, state, this.#isFirst ? this.#written : {});
      if (this.#isFirst) this.#start();
      else this.#keep(Object.fromEntries(Object.entries(state).filter(([name]) => this.#writes.includes(name))));
      for (const name of Object.keys(state)) this.#emit(`change:${name}`);
    }
    if (custom !== undefined) {
      this.#asked.delete(custom.id);
      this.#emit("msg:custom", custom);
    }
  }

  #start() {
    this.#isFirst = false;
    this.isReady();
    if (this.#connections++) this.onReconnect();
  }

  #emit(event, value) {
    for (const action of [...(this.#listeners.get(event) ?? [])]) action(value);
  }

  #send(message) {
    const text = JSON.stringify(message);
    const { id } = message.custom ?? {};
    if (isTooLong(text)) {
      this.onState(TOO_LONG);
      if (id !== undefined) this.#receive({ custom: { id, error: { message: TOO_LONG, hint: "" } } });
    } else if (this.#socket.readyState === WebSocket.OPEN) {
      this.onState("");
      this.#socket.send(text);
    } else this.#unsent.push(text);
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
    this.#keep(state);
    if (this.#socket.readyState === WebSocket.OPEN) this.#send({ state });
  }

  /**
   * Remember values for the next view-model: after a lost connection, and after the page is loaded again.
   *
   * Forget those that would make the message to it too long.
   */
  #keep(values) {
    if (!Object.keys(values).length) return;
    Object.assign(this.#written, values);
    if (isTooLong(JSON.stringify({ state: this.#written }))) for (const name of Object.keys(values)) delete this.#written[name];
    keepWritten(this.view, this.#written);
  }

  send(custom) {
    if (custom?.id !== undefined) this.#asked.add(custom.id);
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
  main.replaceChildren("Loading …");
  for (const link of nav.children) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${views[view]} - lightmeter`;
  addStyle(view);
  let cleanUp;
  let widget;
  const problem = Object.assign(document.createElement("div"), { className: "lm-message lm-error", role: "alert" });
  const draw = async () => {
    cleanUp?.();
    main.replaceChildren();
    await widget.initialize?.({ model });
    cleanUp = await widget.render({ model, el: main });
  };
  const model = new WebModel(view, {
    onState: (text) => (connection.textContent = text),
    onReconnect: () => widget && number === shows && draw(),
    onFatal({ message, hint }) {
      problem.textContent = `${message} ${hint} The page tries again every 3 seconds.`;
      if (!problem.isConnected) main.prepend(problem);
    },
  });
  closeView = () => {
    cleanUp?.();
    model.close();
  };
  const module = (await import(`/static/views/${view}.js?token=${encodeURIComponent(token)}`)).default;
  await model.ready;
  if (number !== shows) return;
  widget = module;
  await draw();
}

const views = await (await fetch(`/views?token=${encodeURIComponent(token)}`)).json();
for (const [view, title] of Object.entries(views)) {
  nav.append(Object.assign(document.createElement("a"), { href: `#${view}`, textContent: title }));
}
addEventListener("hashchange", () => show(views));
await show(views);
