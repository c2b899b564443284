// The filters of the gallery: facets with counts, type-ahead search of tags, severity brush, color.

const COLUMN_LABELS = { status: "Status", kind: "Kind", reason: "Reason" };
const COLOR_DISTANCES = [[0.05, "nearly the same"], [0.1, "similar"], [0.15, "related"]];
let facetIds = 0; // ids of form fields are unique on the page

/** Replace the children of an element; what had the focus gets it again, by its `data-key`. */
function replaceKeepingFocus(element, ...children) {
  const focused = element.getRootNode().activeElement;
  const key = element.contains(focused) ? focused.dataset.key : undefined;
  element.replaceChildren(...children);
  if (key === undefined) return;
  [...element.querySelectorAll("[data-key]")].find((found) => found.dataset.key === key)?.focus();
}

/**
 * Create the panel of facets. `change(changes)` sets filters; `findTags(text)` is a promise of tags with counts.
 *
 * `current()` returns the filters that were set last. The filters of a result may be older, while a search is going on.
 */
function facetPanel({ change, current, findTags }) {
  const id = `lm-facets-${facetIds++}`;
  const tags = h("div", { class: "lm-values" });
  const lists = h("div", {});
  const found = h("div", { class: "lm-values lm-found" });
  const search = h("input", { type: "search", id: `${id}-search`, placeholder: "Find a tag", autocomplete: "off" });
  const foundNote = h("div", { class: "lm-note", role: "status" });
  const brush = severityBrush((severity) => change({ severity }));
  const color = colorFilter((value) => change({ color: value }));
  let result = { facets: { tags: [], sources: [], columns: {} }, filters: {} };
  let searches = 0;

  const runSearch = async () => {
    const number = ++searches;
    const text = search.value.trim();
    const rows = text ? await findTags(text).catch(() => []) : [];
    if (number !== searches) return;
    foundNote.textContent = text && !rows.length ? "No tag contains this text." : "";
    replaceKeepingFocus(found, ...rows.map((row) => valueRow("found", row, chosen("tags"), setTags)));
    const isTicked = (value) => chosen("tags").includes(value);
    const isListed = ({ value }) => !text || (rows.length && isTicked(value) && !rows.some((row) => row.value === value));
    const listed = result.facets.tags.filter(isListed).sort((one, other) =>
      isTicked(other.value) - isTicked(one.value) || other.items - one.items);
    replaceKeepingFocus(tags, ...listed.map((row) => valueRow("tag", row, chosen("tags"), setTags)));
  };
  search.addEventListener("input", debounce(runSearch, 150));
  const chosen = (name) => current()[name] ?? [];
  const chosenOf = (column) => current().values?.[column] ?? [];
  const toggled = (values, value, isOn) => [...values.filter((other) => other !== value), ...(isOn ? [value] : [])];
  const setTags = (value, isOn) => change({ tags: toggled(chosen("tags"), value, isOn) });

  function valueRow(group, { value, items }, values, set) {
    const isOn = values.includes(value);
    const text = value === null ? "(none)" : value === "" ? "(empty)" : group === "status" ? value.replaceAll("_", " ") : value;
    const box = h("input", {
      type: "checkbox", checked: isOn, "data-key": `${group}:${value}`, "aria-label": `${text}, ${plural(items, "item")}`,
      onchange: () => set(value, box.checked),
    });
    return h("label", { class: `lm-value${items || isOn ? "" : " lm-zero"}` }, box, h("span", { class: "lm-text", title: text }, text),
      h("span", { class: "lm-count" }, items.toLocaleString("en-US")));
  }

  function facet(label, rows) {
    return h("fieldset", { class: "lm-facet" }, h("legend", {}, label), h("div", { class: "lm-values" }, rows));
  }

  function show(newResult) {
    result = newResult;
    const { facets, filters } = result;
    runSearch();
    const columns = Object.entries(facets.columns).map(([name, rows]) => {
      const set = (value, isOn) => change({ values: { ...current().values, [name]: toggled(chosenOf(name), value, isOn) } });
      return facet(COLUMN_LABELS[name] ?? name, rows.map((row) => valueRow(name, row, chosenOf(name), set)));
    });
    const setSource = (value, isOn) => change({ sources: toggled(chosen("sources"), value, isOn) });
    const sources = facets.sources.length
      ? [facet("Back end", facets.sources.map((row) => valueRow("source", row, chosen("sources"), setSource)))] : [];
    replaceKeepingFocus(lists, ...columns.slice(0, 2), ...sources, ...columns.slice(2));
    brush.show(facets.severity, current().severity);
    color.show(current().color, filters.color);
  }

  const tagFacet = h("fieldset", { class: "lm-facet" }, h("legend", {}, "Tags"),
    h("label", { class: "lm-hidden", for: `${id}-search` }, "Find a tag"), search, foundNote, found, tags);
  return { element: h("div", { class: "lm-facets" }, tagFacet, brush.element, color.element, lists), show };
}

/** Create the histogram of NSFW severities with a brush of two handles; `set` gets `[low, high]`, or null for all. */
function severityBrush(set) {
  const bars = h("div", { class: "lm-bars" });
  const note = h("div", { class: "lm-note" });
  const handle = (label, value) => h("input", { type: "range", min: 0, max: 1, step: 0.05, value, "aria-label": label });
  const low = handle("Lowest NSFW severity", 0);
  const high = handle("Highest NSFW severity", 1);
  const send = debounce(() => {
    const range = [Number(low.value), Number(high.value)];
    set(range[0] === 0 && range[1] === 1 ? null : range);
  }, 200);
  const moved = (moving) => {
    const [a, b] = [Number(low.value), Number(high.value)];
    if (a > b - 0.05) moving.value = moving === low ? Math.max(0, b - 0.05) : Math.min(1, a + 0.05);
    mark();
    send();
  };
  low.addEventListener("input", () => moved(low));
  high.addEventListener("input", () => moved(high));

  function mark() {
    const [a, b] = [Number(low.value), Number(high.value)];
    const count = bars.children.length;
    [...bars.children].forEach((bar, index) =>
      bar.classList.toggle("lm-out", (index + 0.5) / count < a || (index + 0.5) / count > b));
    range.textContent = a === 0 && b === 1 ? "all" : `${a.toFixed(2)} to ${b.toFixed(2)}`;
  }

  const range = h("span", { class: "lm-count" });
  const element = h("fieldset", { class: "lm-facet" }, h("legend", {}, "NSFW severity ", range),
    bars, h("div", { class: "lm-brush" }, low, high), note);
  return {
    element,
    show(severity, filter) {
      const most = Math.max(1, ...severity.bins);
      bars.replaceChildren(...severity.bins.map((items, index) => {
        const title = `${(index / severity.bins.length).toFixed(2)} to ${((index + 1) / severity.bins.length).toFixed(2)}: ${plural(items, "item")}`;
        const bar = h("i", { title });
        bar.style.height = items ? `${Math.max(4, (100 * Math.log1p(items)) / Math.log1p(most))}%` : "0";
        return bar;
      }));
      element.hidden = !severity.bins.some(Boolean) && !filter;
      if (![low, high].includes(element.getRootNode().activeElement)) [low.value, high.value] = filter ?? [0, 1];
      note.textContent = severity.unrated ? `${plural(severity.unrated, "item")} without a rating` : "";
      mark();
    },
  };
}

/** Create the filter by color; `set` gets `{color, distance}`, or null for any color. */
function colorFilter(set) {
  const text = h("input", { type: "text", placeholder: "any, or teal, #4a7fb5", "aria-label": "Color name or #rrggbb" });
  const picker = h("input", { type: "color", value: "#4a7fb5", "aria-label": "Pick a color" });
  const distance = h("select", { "aria-label": "How near the color is" },
    COLOR_DISTANCES.map(([value, label]) => h("option", { value, selected: value === 0.1 }, label)));
  const send = () => set(text.value.trim() ? { color: text.value.trim(), distance: Number(distance.value) } : null);
  text.addEventListener("change", send);
  distance.addEventListener("change", () => text.value.trim() && send());
  picker.addEventListener("change", () => {
    text.value = picker.value;
    send();
  });
  return {
    element: h("fieldset", { class: "lm-facet" }, h("legend", {}, "Color"), h("div", { class: "lm-color" }, text, picker, distance)),
    /** Show the color filter that was set last. `found` is that of the last result, which has all names as #rrggbb. */
    show(filter, found) {
      if (text.getRootNode().activeElement !== text) text.value = filter?.color ?? "";
      if (!filter) return;
      const wanted = filter.distance ?? found?.distance ?? 0.1;
      const apart = ([value]) => Math.abs(value - wanted); // a saved view may have another distance
      const nearest = COLOR_DISTANCES.reduce((one, other) => (apart(other) < apart(one) ? other : one));
      distance.value = String(nearest[0]);
      picker.value = /^#[0-9a-f]{6}$/i.test(filter.color) ? filter.color : found?.color ?? picker.value;
    },
  };
}
