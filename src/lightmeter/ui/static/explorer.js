// The gallery of a run: toolbar, facets, cards.

const STATUS_MARKS = { ok: "✓", failed: "✗", in_doubt: "?", skipped: "–", duplicate: "=", over_budget: "$", pending: "…" };
const SORT_LABELS = {
  "": "Manifest order", severity: "NSFW severity", "column:duration_s": "Duration", "column:url": "Address",
  "column:credits": "Credits", "column:width": "Width", "column:height": "Height", "column:size_bytes": "File size",
  "column:answered_at": "Time of the answer", distance: "Color distance", similarity: "Similarity",
};
const MAX_THUMBNAILS = 2000;
const MAX_SELECTED = 100_000;
const MAX_SELECTION_BYTES = 3 * 1024 * 1024; // less than a message may have: page.js sends the filters with it

/** Create the thumbnails of cards: `show(element, card)` puts a picture, or the reason why there is none, into it. */
function thumbnailCache(connection) {
  const thumbnails = new Map(); // item id → thumbnail
  const shots = new Map(); // item id → [element, card]
  const wanted = new Set();
  let showsBlurred = false;

  const ask = debounce(async () => {
    const item_ids = [...wanted].filter((item) => shots.get(item)?.[0].isConnected);
    wanted.clear();
    if (!item_ids.length) return;
    const ready = await connection.call("thumbnails", { item_ids }).catch(() => ({}));
    for (const [item_id, thumbnail] of Object.entries(ready)) keep({ item_id, ...thumbnail });
  }, 60);

  function keep(thumbnail) {
    const old = thumbnails.get(thumbnail.item_id);
    // the reply to a request may come after the event that says why there is no picture
    const isKnown = old?.src || (old?.reason && !thumbnail.src);
    if (!isKnown) thumbnails.set(thumbnail.item_id, thumbnail);
    for (const item of [...thumbnails.keys()].slice(0, Math.max(0, thumbnails.size - MAX_THUMBNAILS))) thumbnails.delete(item);
    for (const [item, [element]] of shots) if (!element.isConnected) shots.delete(item);
    if (shots.has(thumbnail.item_id)) draw(...shots.get(thumbnail.item_id));
  }

  function draw(element, card) {
    const thumbnail = thumbnails.get(card.item_id);
    const isBlurred = card.blurred && !showsBlurred;
    const src = isBlurred ? thumbnail?.blurred : thumbnail?.src;
    const alt = isBlurred ? `${card.name}, blurred` : [card.name, card.tags.map(([name]) => name).join(", ")].filter(Boolean).join(": ");
    const seconds = card.duration_s === null ? "" : ` ${Math.round(card.duration_s)} s`;
    const badge = isBlurred ? "blurred: NSFW" : card.kind === "video" ? `video${seconds}` : "";
    element.classList.toggle("lm-blurred", Boolean(isBlurred));
    element.replaceChildren(
      src ? h("img", { src, alt, draggable: "false" }) : h("span", { class: "lm-missing" }, thumbnail?.reason || "loading …"),
      ...(badge ? [h("span", { class: "lm-badge" }, badge)] : []));
  }

  connection.on("thumbnail", keep);
  return {
    show(element, card) {
      shots.set(card.item_id, [element, card]);
      draw(element, card);
      if (thumbnails.has(card.item_id)) return;
      wanted.add(card.item_id);
      ask();
    },
    showBlurred(value) {
      showsBlurred = value;
      for (const shot of shots.values()) draw(...shot);
    },
  };
}

/** Create the fields for the order of the gallery. */
function sortFields(connection, set) {
  const by = h("select", { "aria-label": "Sort by" });
  const descending = h("button", { type: "button", class: "lm-small", hidden: true });
  const send = (isDescending) => set({ by: by.value, descending: isDescending });
  by.addEventListener("change", () => send(by.value === "severity" || by.value.startsWith("tag:")));
  descending.addEventListener("click", () => send(!connection.get("sort")?.descending));
  return {
    element: h("span", { class: "lm-group" }, h("span", { "aria-hidden": "true" }, "Sort by"), by, descending),
    show({ sorts, filters }) {
      const sort = connection.get("sort") ?? {};
      const names = ["", ...(filters.color ? ["distance"] : []), ...(filters.similar ? ["similarity"] : []), "severity",
        ...new Set([...filters.tags.map((tag) => `tag:${tag}`), ...(sort.by?.startsWith("tag:") ? [sort.by] : [])]),
        ...sorts.map((name) => `column:${name}`)];
      const label = (name) => SORT_LABELS[name] ?? (name.startsWith("tag:") ? `Score of ${name.slice(4)}` : name.slice(7));
      const natural = filters.similar ? "Nearest first" : filters.color ? "Nearest color first" : "Manifest order";
      by.replaceChildren(...names.map((name) => h("option", { value: name }, name === "" ? natural : label(name))));
      by.value = names.includes(sort.by) ? sort.by : "";
      descending.textContent = sort.descending ? "↓ largest first" : "↑ smallest first";
      descending.hidden = by.value === "";
    },
  };
}

/** Create the fields for saved views. */
function viewFields(connection) {
  const list = h("select", { "aria-label": "Saved views" });
  const name = h("input", { type: "text", placeholder: "Name of this view", "aria-label": "Name of this view", size: 16 });
  const save = h("button", { type: "button", class: "lm-small" }, "Save view");
  const remove = h("button", { type: "button", class: "lm-small" }, "Delete view");
  const call = (method, view) => connection.call(method, { name: view }).catch(() => {});
  list.addEventListener("change", () => {
    name.value = list.value;
    if (list.value) call("open_view", list.value);
    remove.hidden = !list.value;
  });
  save.addEventListener("click", () => call("save_view", name.value));
  remove.addEventListener("click", () => call("delete_view", list.value));
  name.addEventListener("keydown", (event) => {
    if (event.key === "Enter") call("save_view", name.value);
  });
  connection.watch(["views"], () => {
    const views = Object.keys(connection.get("views") ?? {}).sort();
    const shown = list.value || name.value;
    list.replaceChildren(h("option", { value: "" }, views.length ? "Saved views …" : "No saved views"), ...views.map((view) => h("option", { value: view }, view)));
    list.value = views.includes(shown) ? shown : "";
    remove.hidden = !list.value;
  });
  return h("span", { class: "lm-group" }, list, name, save, remove);
}

/** Return the palette of a card: a strip of its colors. */
function palette(colors) {
  const strip = h("div", { class: "lm-strip", role: "img",
    "aria-label": colors.length ? `colors: ${colors.map(([hex, share]) => `${hex} ${percent(share)}`).join(", ")}` : "no colors" });
  for (const [hex, share] of colors) {
    const part = h("i", { title: `${hex} ${percent(share)}` });
    part.style.cssText = `background: ${hex}; flex: ${Math.max(share, 0.02)}`;
    strip.append(part);
  }
  return strip;
}

function render({ model, el }) {
  const connection = connect(model);
  const thumbnails = thumbnailCache(connection);
  const setFilters = (changes) => connection.set("filters", { ...connection.get("filters"), ...changes });
  const position = h("div", { class: "lm-position", role: "status" });
  const problem = h("div", { class: "lm-message lm-error", role: "alert", hidden: true });
  const tooMany = h("div", { class: "lm-message lm-error", role: "alert", hidden: true });
  const blurred = h("input", { type: "checkbox", onchange: () => thumbnails.showBlurred(blurred.checked) });
  const clear = h("button", { type: "button", class: "lm-small", onclick: clearFilters }, "Clear filters");
  const selected = h("span", { class: "lm-group" });
  const facets = facetPanel({
    change: setFilters, current: () => connection.get("filters") ?? {},
    findTags: (text) => connection.call("find_tags", { text }),
  });
  const sort = sortFields(connection, (value) => connection.set("sort", value));
  let result = null;
  let selection = new Set();
  let anchor = 0; // where a range of selected cards begins

  const grid = cardGrid({
    async loadCards(offset, limit) {
      const { version, cards } = await connection.call("page", { version: result.version, offset, limit });
      if (version !== result.version) throw new Error("the filters have changed");
      return cards;
    },
    drawCard,
    open: openDetails,
    select,
    similar: (index) => similar(grid.cardAt(index)),
  });

  function clearFilters() {
    if (result === null) connection.set("sort", {}); // (the order that a reload restored may be invalid)
    connection.set("filters", {});
  }

  function drawCard(card, index) {
    const shot = h("span", { class: "lm-shot" });
    const box = h("input", { type: "checkbox", checked: selection.has(card.item_id), "aria-label": `Select ${card.name}`,
      onclick: (event) => select(index, { shiftKey: event.shiftKey, isOn: box.checked }) });
    const open = h("button", { type: "button", class: "lm-open", "aria-label": `Details of ${card.name}`,
      onclick: (event) => (event.shiftKey ? select(index, event) : openDetails(index, card)) }, shot);
    thumbnails.show(shot, card);
    const status = card.reason ? `${card.status}: ${card.reason}` : card.status;
    const severity = card.severity === null ? "not rated" : `NSFW ${card.severity.toFixed(2)}`;
    return [open, h("label", { class: "lm-check" }, box),
      h("div", { class: "lm-name", title: card.url }, card.name),
      h("div", { class: "lm-tags" }, card.tags.map(([name, score]) => (score === null ? name : `${name} ${percent(score)}`)).join(", ") || "no tags"),
      palette(card.colors),
      h("div", { class: "lm-foot" }, h("span", { title: status.replaceAll("_", " ") }, `${STATUS_MARKS[card.status] ?? ""} ${status.replaceAll("_", " ")}`), h("span", {}, severity),
        result.has_embeddings && h("button", { type: "button", class: "lm-link", "aria-label": `Show pictures similar to ${card.name}`, onclick: () => similar(card) }, "similar"))];
  }

  function similar(card) {
    if (card && result.has_embeddings) connection.call("show_similar", { item_id: card.item_id }).catch(() => {});
  }

  function openDetails(index, card) {
    if (typeof showItemDetails !== "function") return;
    let at = index;
    const move = (step) => async () => {
      const next = await grid.fetchCard(at + step);
      if (next === null) return undefined;
      at += step;
      return next.item_id;
    };
    showItemDetails(connection, root, card.item_id, { onNext: move(1), onPrevious: move(-1), onClose: () => grid.moveTo(at) });
  }

  function setSelection(ids) {
    const isTooLarge = new TextEncoder().encode(JSON.stringify(ids)).length > MAX_SELECTION_BYTES;
    tooMany.hidden = !isTooLarge;
    tooMany.textContent = isTooLarge ? `${plural(ids.length, "item")} are too many to select at a time. Use a filter instead.` : "";
    if (isTooLarge) showSelection();
    else connection.set("selection", ids);
  }

  async function select(index, { shiftKey = false, from, isOn }) {
    const card = grid.cardAt(index);
    if (!card) return;
    const value = isOn ?? (shiftKey ? true : !selection.has(card.item_id));
    let ids = [card.item_id];
    if (shiftKey) {
      const start = from !== undefined && selection.size === 0 ? from : anchor;
      const [first, last] = [Math.min(start, index), Math.max(start, index)];
      ids = await connection.call("item_range", { first, last }).catch(() => []);
      anchor = start;
    } else anchor = index;
    const chosen = new Set(connection.get("selection"));
    for (const id of ids) value ? chosen.add(id) : chosen.delete(id);
    setSelection([...chosen]);
  }

  async function selectAll() {
    const ids = await connection.call("item_range", { first: 0, last: result.items - 1 }).catch(() => null);
    if (ids) setSelection(ids);
  }

  function showSelection() {
    selection = new Set(connection.get("selection"));
    for (const [, element] of grid.drawn()) {
      const isOn = selection.has(element.dataset.item);
      const box = element.querySelector("input");
      if (box) box.checked = isOn;
    }
    const button = (text, action, key) => h("button", { type: "button", class: "lm-small", "data-key": key, onclick: action }, text);
    replaceKeepingFocus(selected,
      ...(selection.size ? [h("span", {}, `${plural(selection.size, "item")} selected`), button("Clear selection", () => setSelection([]), "none")] : []),
      ...(result?.items && result.items <= MAX_SELECTED ? [button("Select all shown", selectAll, "all")] : []));
  }

  function showPosition() {
    if (result === null) position.textContent = connection.get("problem") ? "" : "Reading the tables …";
    else if (!result.total) position.textContent = connection.get("problem") ? "" : "The tables are empty.";
    else if (!result.items) position.textContent = "No item is left by these filters. Widen them, or clear them.";
    else if (result.filters.similar) position.textContent = `${plural(result.items, "item")} most like ${result.filters.similar.name}`;
    else position.textContent = result.items === result.total ? plural(result.total, "item") : `${result.items.toLocaleString("en-US")} of ${plural(result.total, "item")}`;
    const isOld = Boolean(result?.total && connection.get("problem"));
    if (isOld) position.textContent += " (of the last valid filters)";
    root.classList.toggle("lm-old", isOld);
    root.classList.toggle("lm-busy", Boolean(connection.get("busy")));
  }

  const keys = h("p", { class: "lm-note lm-keys" });
  const panel = h("details", { class: "lm-side" }, h("summary", {}, "Filters"), facets.element);
  const root = h("div", { class: "lightmeter lm-explorer" }, errorLine(connection), problem, tooMany,
    h("div", { class: "lm-toolbar" }, position, clear, sort.element,
      h("label", { class: "lm-group" }, blurred, "Show blurred pictures"), viewFields(connection), selected),
    h("div", { class: "lm-body" }, panel, grid.element),
    keys);
  el.append(suppressHostShortcuts(root));
  panel.open = el.clientWidth === 0 || el.clientWidth > 700;

  connection.watch(["problem"], () => {
    problem.textContent = connection.get("problem") ?? "";
    problem.hidden = !problem.textContent;
    showPosition();
  });
  connection.watch(["busy"], showPosition);
  connection.watch(["result"], () => {
    const value = connection.get("result");
    if (!value?.version) return;
    result = value;
    anchor = 0;
    tooMany.hidden = true;
    clear.hidden = !Object.values(result.filters).some((filter) =>
      Array.isArray(filter) ? filter.length : filter && (filter.color || filter.item_id || Object.values(filter).some((one) => one?.length)));
    keys.textContent = "Arrow keys move, Enter shows the details, Space selects, Shift selects a range"
      + (result.has_embeddings ? ", S shows similar pictures." : ".");
    facets.show(result);
    sort.show(result);
    showPosition();
    grid.reset(result.items);
    showSelection();
  });
  connection.watch(["selection"], showSelection);
  return () => {
    grid.close();
    connection.close();
  };
}

export default { render };
