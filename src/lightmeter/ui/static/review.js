// The review of NSFW ratings: thresholds, a queue with one large picture, decisions by keyboard.

const DECISIONS = { keep: ["Keep", "k", "✓"], reject: ["Reject", "r", "✕"], unsure: ["Unsure", "u", "?"] };
const NEIGHBOURS = 4; // on each side of the large picture
const REFRESH_MS = 4000;
const SHOWN = [["flagged", "at or above a threshold"], ["disputed", "where back ends disagree"],
  ["below", "below all thresholds"], ["all", "all rated items"]];
const ORDERS = [["severity", "highest severity"], ["disagreement", "largest disagreement"]];
const STATES = [["all", "decided or not"], ["undecided", "undecided"], ["decided", "decided"]];

function render({ model, el }) {
  const view = {
    connection: connect(model), place: 0, start: 0, items: [], pictures: new Map(), large: new Map(),
    unblurred: null, undo: [], empty: "", thresholds: {}, notes: new Map(), chooses: 0, loads: 0,
  };
  const { connection } = view;
  const top = h("div", { class: "lm-review-top" });
  const status = h("p", { class: "lm-message", role: "status", hidden: true });
  view.body = h("div", { hidden: true });
  view.root = h("div", { class: "lightmeter lm-review", tabindex: "-1" },
    errorLine(connection), status, top, view.body);
  el.append(suppressHostShortcuts(view.root));
  // The page of `lightmeter ui` has no other shortcuts; a notebook keeps its own while the focus is elsewhere.
  const isOwnPage = el.id === "view";
  const keysFrom = isOwnPage ? document : view.root;
  const onKey = (event) => pressed(view, event);
  keysFrom.addEventListener("keydown", onKey);
  connection.on("thumbnail", (value) => gotThumbnail(view, value));
  connection.on("picture", (value) => gotPicture(view, value));
  connection.on("decided_all", ({ batch, items }) => decidedAll(view, batch, items));
  connection.watch(["note", "is_loading"], () => {
    status.textContent = connection.get("is_loading") ? "Reading the ratings…" : connection.get("note") ?? "";
    status.hidden = !status.textContent;
  });
  connection.watch(["is_loading", "sources"], () => {
    const sources = connection.get("sources") ?? [];
    if (!connection.get("is_loading") && !view.built) build(view, top, sources, isOwnPage);
  });
  const timer = setInterval(() => { if (view.built && view.root.isConnected && !document.hidden) {
    connection.call("refresh").catch(() => {});
  } }, REFRESH_MS);
  return () => {
    clearInterval(timer);
    keysFrom.removeEventListener("keydown", onKey);
    connection.close();
  };
}

function build(view, top, sources, focus) {
  view.built = true;
  if (!sources.length) {
    view.body.append(agreementSection(view.connection));
    view.body.hidden = false;
    return;
  }
  for (const { name } of sources) view.thresholds[name] = 0.5;
  top.append(h("div", { class: "lm-thresholds" }, sources.map((source) => thresholdRow(view, source))), ...choices(view));
  view.body.append(progressLine(view), stage(view), bulk(view), agreementSection(view.connection));
  view.body.hidden = false;
  choose(view).then(() => { if (focus) view.stage.focus(); });
}

/** Return the row of one back end: name, histogram, slider, and the number of items at or above the threshold. */
function thresholdRow(view, { name, histogram }) {
  const count = h("output", { class: "lm-number" });
  const value = h("output", { class: "lm-number" });
  const chosen = debounce(() => choose(view), 150);
  const line = svg("line", { y1: 0, y2: 24, class: "lm-cut" });
  const show = () => {
    const least = Math.round(view.thresholds[name] * 100);
    const above = histogram.slice(least).reduce((sum, items) => sum + items, 0);
    value.textContent = view.thresholds[name].toFixed(2);
    count.textContent = `${above.toLocaleString("en-US")} at or above`;
    line.setAttribute("x1", least);
    line.setAttribute("x2", least);
  };
  const slider = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0.5, "aria-label": `Threshold of ${name}`,
    oninput: (event) => { view.thresholds[name] = Number(event.target.value); show(); chosen(); } });
  show();
  return h("div", { class: "lm-threshold" }, h("span", { class: "lm-source" }, name),
    h("span", { class: "lm-slide" }, bars(histogram, line), slider), value, count);
}

/** Return a small histogram; heights are logarithmic, so that few severe items beside many harmless ones are seen. */
function bars(histogram, line) {
  const most = Math.log1p(Math.max(1, ...histogram));
  const steps = histogram.map((items, at) => [at, (24 * Math.log1p(items)) / most]);
  return svg("svg", { class: "lm-bars", viewBox: "0 0 101 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    steps.filter(([, height]) => height > 0).map(([at, height]) => svg("rect", { x: at, y: 24 - height, width: 1, height })),
    line);
}

function choices(view) {
  const select = (label, name, entries) => {
    const list = h("select", { onchange: () => choose(view) },
      entries.map(([value, text]) => h("option", { value }, text)));
    view[name] = list;
    return h("label", {}, h("span", {}, label), list);
  };
  view.user = h("input", { type: "text", value: view.connection.get("user") ?? "", autocomplete: "off",
    onchange: (event) => view.connection.set("user", event.target.value) });
  view.totalsLine = h("p", { class: "lm-note", role: "status" });
  return [h("div", { class: "lm-choices" }, select("Show", "show", SHOWN), select("First", "order", ORDERS),
    select("State", "state", STATES), h("label", {}, h("span", {}, "Reviewer"), view.user)), view.totalsLine];
}

function progressLine(view) {
  const text = h("p", { role: "status", class: "lm-progress-text" });
  const bar = h("progress", { "aria-label": "Decided" });
  view.connection.watch(["progress"], () => {
    const { items = 0, decided = 0, ...counts } = view.connection.get("progress") ?? {};
    bar.max = Math.max(1, items);
    bar.value = decided;
    const parts = ["keep", "reject", "unsure", "undecided"].map((name) => `${(counts[name] ?? 0).toLocaleString("en-US")} ${name}`);
    text.replaceChildren(h("b", {}, `${decided.toLocaleString("en-US")} of ${items.toLocaleString("en-US")} decided`),
      ` · ${parts.join(" · ")}`, items > 0 && decided === items ? " · All items of this queue are decided." : "");
  });
  return h("div", { class: "lm-progress" }, text, bar);
}

function stage(view) {
  const button = (label, key, action, attributes = {}) =>
    h("button", { type: "button", class: "lm-button", "aria-keyshortcuts": key, onclick: action, ...attributes },
      label, " ", h("kbd", { "aria-hidden": "true" }, key));
  view.picture = h("div", { class: "lm-large" });
  view.facts = h("div", { class: "lm-ratings" });
  view.noteBox = h("textarea", { rows: 2, oninput: () => view.notes.set(current(view)?.item_id, view.noteBox.value) });
  view.deciders = Object.entries(DECISIONS).map(([decision, [label, key]]) =>
    button(label, key, () => decide(view, decision), { class: `lm-button lm-${decision}` }));
  view.undoButton = button("Undo", "z", () => undo(view));
  view.blurButton = button("Show", "b", () => toggleBlur(view));
  view.blurAll = h("input", { type: "checkbox", checked: true, onchange: () => showItem(view) });
  const tools = [view.undoButton, view.blurButton];
  view.detailsButton = button("Details", "d", () => openDetails(view));
  if (typeof showItemDetails === "function") tools.push(view.detailsButton);
  view.strip = h("div", { class: "lm-neighbours", role: "group", "aria-label": "Neighbours in the queue" });
  view.stage = h("div", { class: "lm-stage", tabindex: "0", role: "group", "aria-label": "Item to decide" },
    h("div", {}, view.picture, view.strip),
    h("div", { class: "lm-side" }, view.facts, h("div", { class: "lm-buttons" }, view.deciders),
      h("label", { class: "lm-note-field" }, h("span", {}, "Note ", h("kbd", {}, "n")), view.noteBox),
      h("div", { class: "lm-buttons" }, tools),
      h("label", {}, view.blurAll, " Blur pictures until asked"),
      h("p", { class: "lm-note" }, "Arrow keys move through the queue. Enter in the note writes it to a decided item.")));
  setWritable(view);
  return view.stage;
}

function setWritable(view) {
  const locked = !view.connection.get("may_write");
  const focused = view.root.getRootNode().activeElement;
  for (const control of [...view.deciders, view.noteBox, view.user]) control.disabled = locked;
  view.undoButton.disabled = locked || !view.undo.length;
  // A disabled control gets no keys, and a browser may take the focus from it at once: the focus goes to the stage.
  if (focused?.disabled) view.stage.focus({ preventScroll: true });
}

function bulk(view) {
  const which = h("select", {}, h("option", { value: "below" }, "below all thresholds"),
    h("option", { value: "above" }, "at or above a threshold"));
  const decision = h("select", {}, Object.entries(DECISIONS).map(([value, [label]]) => h("option", { value }, label.toLowerCase())));
  const confirm = h("div", { class: "lm-confirm", role: "status" });
  const locked = !view.connection.get("may_write");
  const ask = h("button", { type: "button", class: "lm-button", disabled: locked,
    onclick: () => askBulk(view, confirm, which.value, decision.value) }, "Decide all…");
  for (const control of [which, decision]) {
    control.disabled = locked;
    control.addEventListener("change", () => confirm.replaceChildren());
  }
  view.confirm = confirm;
  return h("div", { class: "lm-bulk" }, h("label", {}, h("span", {}, "Undecided items"), which),
    h("label", {}, h("span", {}, "Decision"), decision), ask, confirm);
}

/** Ask for a confirmation that names the number of items; only its button decides. */
async function askBulk(view, confirm, which, decision) {
  const expected = await view.connection.call("count_undecided", { which }).catch(() => null);
  if (expected === null) return;
  if (!expected) {
    confirm.replaceChildren("There is no such item.");
    return;
  }
  const cancel = () => {
    confirm.replaceChildren();
    view.stage.focus({ preventScroll: true });
  };
  const accept = async () => {
    confirm.replaceChildren("Writing…");
    view.stage.focus({ preventScroll: true });
    await view.connection.call("decide_all", { which, decision, expected }).catch(cancel);
  };
  const yes = h("button", { type: "button", class: `lm-button lm-${decision}`, onclick: accept },
    `${DECISIONS[decision][0]} ${plural(expected, "item")}`);
  confirm.replaceChildren(yes, h("button", { type: "button", class: "lm-button", onclick: cancel }, "Cancel"));
  yes.focus();
}

function decidedAll(view, batch, items) {
  view.undo.push({ batch });
  view.confirm.replaceChildren(`${plural(items, "item")} decided. Undo takes them all back.`);
  setWritable(view);
  load(view);
}

/** Make the queue anew by the thresholds and lists, and show its first undecided item. */
async function choose(view) {
  const call = ++view.chooses;
  view.confirm?.replaceChildren();
  const params = { thresholds: view.thresholds, show: view.show.value, order: view.order.value, state: view.state.value };
  const found = await view.connection.call("choose", params).catch(() => null);
  if (found === null || call !== view.chooses) return;
  const pairs = found.pairs.map(({ one, other, only_one, only_other, kappa }) =>
    `${one} and ${other} disagree on ${(only_one + only_other).toLocaleString("en-US")}`
    + (kappa === null ? "" : ` (kappa ${kappa.toFixed(2)})`));
  view.totalsLine.textContent = [`${plural(found.flagged, "item")} at or above a threshold`,
    `${found.disputed.toLocaleString("en-US")} where back ends disagree`, ...pairs].join(" · ");
  view.place = found.first;
  view.empty = found.empty;
  await load(view);
}

/** Load the items around the place in the queue, and show them. */
async function load(view) {
  const call = ++view.loads;
  const start = Math.max(0, view.place - NEIGHBOURS);
  const found = await view.connection.call("window", { start, count: 2 * NEIGHBOURS + 4 }).catch(() => null);
  if (found === null || call !== view.loads) return;
  view.start = found.start;
  view.items = found.items;
  showItem(view);
  const missing = view.items.map((item) => item.item_id).filter((id) => !view.pictures.has(id));
  if (!missing.length) return;
  const pictures = await view.connection.call("thumbnails", { item_ids: missing }).catch(() => ({}));
  for (const [item_id, picture] of Object.entries(pictures)) gotThumbnail(view, { item_id, ...picture });
}

function current(view) {
  return view.items[view.place - view.start];
}

function length(view) {
  return view.connection.get("progress")?.items ?? 0;
}

function move(view, steps) {
  const place = Math.min(length(view) - 1, Math.max(0, view.place + steps));
  if (place === view.place || place < 0) return;
  view.place = place;
  view.unblurred = null;
  if (current(view)) showItem(view);
  load(view);
}

function gotThumbnail(view, { item_id, src, blurred, reason }) {
  if (src === null && !reason) return;
  view.pictures.set(item_id, { src, blurred, reason });
  if (view.pictures.size > 500) view.pictures.delete(view.pictures.keys().next().value);
  if (view.items.some((item) => item.item_id === item_id)) showPictures(view);
}

function gotPicture(view, { item_id, frame, src }) {
  if (frame !== null || src === null || src === undefined) return;
  view.large.clear();
  view.large.set(item_id, src);
  if (current(view)?.item_id === item_id) showPictures(view);
}

function isBlurred(view, item) {
  return view.blurAll.checked && view.unblurred !== item.item_id;
}

function image(view, item, alt) {
  const picture = view.pictures.get(item.item_id);
  if (picture === undefined) return h("span", { class: "lm-note" }, "…");
  if (picture.src === null) return h("span", { class: "lm-missing" }, picture.reason);
  if (isBlurred(view, item)) return h("img", { src: picture.blurred ?? "data:,", class: "lm-blurred", alt: `${alt}, blurred` });
  return h("img", { src: view.large.get(item.item_id) ?? picture.src, alt });
}

function showItem(view) {
  const item = current(view);
  showPictures(view);
  view.facts.replaceChildren(...(item === undefined ? [h("p", { role: "status" }, view.empty)] : facts(view, item)));
  if (item !== undefined) view.noteBox.value = view.notes.get(item.item_id) ?? item.review?.note ?? "";
  for (const control of view.deciders) control.removeAttribute("aria-pressed");
  if (item?.review) {
    view.deciders[Object.keys(DECISIONS).indexOf(item.review.decision)].setAttribute("aria-pressed", "true");
  }
  view.detailsButton.disabled = item === undefined;
  setWritable(view);
  const writable = view.connection.get("may_write") && item !== undefined;
  for (const control of [...view.deciders, view.noteBox]) control.disabled = !writable;
}

function showPictures(view) {
  const item = current(view);
  view.picture.replaceChildren(...(item === undefined ? [] : [image(view, item, item.name)]));
  view.blurButton.firstChild.textContent = item === undefined || isBlurred(view, item) ? "Show" : "Blur";
  view.blurButton.disabled = !view.blurAll.checked || item === undefined;
  const near = view.items.map((one, index) => [one, view.start + index])
    .filter(([, place]) => Math.abs(place - view.place) <= NEIGHBOURS);
  view.strip.replaceChildren(...near.map(([one, place]) => neighbour(view, one, place)));
}

function neighbour(view, item, place) {
  const decision = item.review?.decision;
  const label = `${item.name}, ${decision ?? "undecided"}`;
  return h("button", { type: "button", class: "lm-neighbour", "aria-label": label, title: item.name,
    "aria-current": place === view.place ? "true" : null, tabindex: "-1",
    onclick: () => { move(view, place - view.place); view.stage.focus(); } },
    image(view, item, ""), decision ? h("span", { class: `lm-badge lm-${decision}` }, DECISIONS[decision][2]) : null);
}

function facts(view, item) {
  const rows = Object.entries(item.severities).map(([source, severity]) => {
    const flagged = severity >= view.thresholds[source];
    return h("div", { class: "lm-gauge" }, h("span", { class: "lm-source" }, source),
      h("span", { class: "lm-scale" }, h("i", { class: flagged ? "lm-over" : null, style: `width:${100 * severity}%` }),
        h("i", { class: "lm-at", style: `left:${100 * view.thresholds[source]}%` })),
      h("span", { class: "lm-number" }, severity.toFixed(2)), h("span", { class: "lm-flag" }, flagged ? "flagged" : ""));
  });
  const { review } = item;
  const said = review === null ? "Undecided"
    : `${DECISIONS[review.decision][2]} ${review.decision}, by ${review.by}, ${new Date(review.at * 1000).toLocaleString()}`;
  return [h("div", { class: "lm-name", title: item.name }, item.name),
    h("p", { class: "lm-note" }, `${(view.place + 1).toLocaleString("en-US")} of ${length(view).toLocaleString("en-US")} in the queue`
      + (item.kind === "video" ? " · video" : "")),
    ...rows, h("p", { class: "lm-said", role: "status" }, said)];
}

/** Write a decision about the current item; then show the next item. */
async function decide(view, decision, { stay = false } = {}) {
  const item = current(view);
  if (item === undefined || !view.connection.get("may_write")) return;
  const { item_id } = item;
  const place = view.place;
  const params = { item_id, decision, note: view.noteBox.value };
  if (!stay) move(view, 1);
  const batch = await view.connection.call("decide", params).catch(() => null);
  if (batch === null) {
    view.place = place;
  } else {
    view.undo.push({ batch, place, item_id });
    view.notes.delete(item_id);
  }
  setWritable(view);
  load(view);
}

/** Take the last decision of this page back, and show its item. */
async function undo(view) {
  const last = view.undo.pop();
  if (last === undefined || !view.connection.get("may_write")) return;
  const items = await view.connection.call("undo", { batch: last.batch }).catch(() => null);
  if (items === null) view.undo.push(last);
  else if (last.place !== undefined && last.place < length(view)) view.place = last.place;
  view.confirm.replaceChildren();
  setWritable(view);
  load(view);
}

function toggleBlur(view) {
  const item = current(view);
  if (item === undefined || !view.blurAll.checked) return;
  view.unblurred = isBlurred(view, item) ? item.item_id : null;
  if (view.unblurred !== null && typeof showItemDetails === "function") {
    view.connection.call("picture", { item_id: item.item_id }).catch(() => {});
  }
  showPictures(view);
}

function openDetails(view) {
  const item = current(view);
  if (item === undefined) return;
  const go = (steps) => {
    move(view, steps);
    return current(view)?.item_id;
  };
  showItemDetails(view.connection, view.root, item.item_id,
    { onNext: () => go(1), onPrevious: () => go(-1), onClose: () => view.stage.focus() });
}

const KEYS = {
  k: (view) => decide(view, "keep"),
  r: (view) => decide(view, "reject"),
  u: (view) => decide(view, "unsure"),
  z: undo,
  b: toggleBlur,
  d: (view) => { if (typeof showItemDetails === "function") openDetails(view); },
  n: (view) => view.noteBox.focus(),
  ArrowRight: (view) => move(view, 1),
  ArrowDown: (view) => move(view, 1),
  ArrowLeft: (view) => move(view, -1),
  ArrowUp: (view) => move(view, -1),
  PageDown: (view) => move(view, 10),
  PageUp: (view) => move(view, -10),
};

const TEXT_FIELDS = "textarea, input:not([type=checkbox], [type=range]), [contenteditable], dialog";
const OWN_ARROWS = "select, input[type=range], .lm-scroll"; // elements in which arrow keys and Page Up have a meaning

function pressed(view, event) {
  const { target, key } = event;
  if (target === view.noteBox) {
    pressedInNote(view, event);
    return;
  }
  if (!view.stage || !view.root.isConnected || event.ctrlKey || event.metaKey || event.altKey) return;
  const action = KEYS[key.length === 1 ? key.toLowerCase() : key];
  if (action === undefined || target.closest(key.length === 1 ? TEXT_FIELDS : `${TEXT_FIELDS}, ${OWN_ARROWS}`)) return;
  if (view.root.querySelector("dialog[open]")) return;
  event.preventDefault();
  event.stopPropagation();
  action(view);
}

/** Enter writes the note to a decided item and leaves the field; Escape leaves it. */
function pressedInNote(view, event) {
  event.stopPropagation();
  if (event.key !== "Escape" && (event.key !== "Enter" || event.shiftKey)) return;
  event.preventDefault();
  const { review } = current(view) ?? {};
  view.stage.focus();
  if (event.key === "Enter" && review && (review.note ?? "") !== view.noteBox.value.trim()) {
    decide(view, review.decision, { stay: true });
  }
}

export default { render };
