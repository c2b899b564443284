// The details of one item in a dialog: enlarged picture with boxes, results of each back end, frames, facts.

/**
 * Show an item in a modal dialog inside `el`; return a function that closes the dialog without calling `onClose`.
 *
 * `onNext` and `onPrevious` (optional) may return the id of an item, or a promise of one: then the dialog shows that
 * item. `onClose` (optional) is called when the user closes the dialog.
 */
const showItemDetails = (() => {
  const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f"];
  const DASHES = ["", "9 4", "2 4", "12 3 2 3", "5 5", "1 6", "14 6", "6 2 1 2 1 2"];
  const KINDS = { face: "Faces", text: "Texts", brand: "Brands" };
  const STRIP_FRAMES = 24; // as MAX_STRIP in item_view_model.py
  const MANY_BOXES = 25;
  const STATUS_COLORS = {
    ok: "#2f9a5d", failed: "#d33f3f", skipped: "#8a8a8a", duplicate: "#3f7fd9", in_doubt: "#c9781e", over_budget: "#9458c4",
  };
  const hidden = new Set(); // kinds and back ends whose boxes are hidden, in all dialogs
  const shownIn = new WeakMap(); // connection → the dialog that gets its events

  function show(connection, el, itemId, options = {}) {
    listen(connection);
    const panel = { connection, options };
    panel.dialog = h("dialog", {
      class: "lightmeter lm-item", "aria-label": "Item",
      onkeydown: (event) => pressed(panel, event),
      oncancel: (event) => { event.preventDefault(); closeByUser(panel); },
      onclick: (event) => { if (event.target === panel.dialog) closeByUser(panel); },
    });
    el.append(suppressHostShortcuts(panel.dialog));
    shownIn.set(connection, panel);
    panel.dialog.showModal();
    showItem(panel, itemId);
    return () => close(panel);
  }

  function listen(connection) {
    if (shownIn.has(connection)) return;
    shownIn.set(connection, null);
    const of = (event, action) =>
      connection.on(event, (value) => {
        const panel = shownIn.get(connection);
        if (panel && panel.itemId === value.item_id) action(panel, value);
      });
    of("details", (panel, value) => { if (value.frame === panel.frame) gotDetails(panel, value); });
    of("picture", (panel, value) => { if (value.frame === panel.frame) gotPicture(panel, value); });
    of("strip", gotStrip);
  }

  function close(panel) {
    if (shownIn.get(panel.connection) === panel) shownIn.set(panel.connection, null);
    panel.dialog.close();
    panel.dialog.remove();
  }

  function closeByUser(panel) {
    close(panel);
    panel.options.onClose?.();
  }

  async function move(panel, action) {
    try {
      const itemId = await action?.();
      if (typeof itemId === "string" && panel.dialog.isConnected) showItem(panel, itemId);
    } catch (error) {
      fail(panel, error);
    }
  }

  function pressed(panel, event) {
    event.stopPropagation(); // the notebook has shortcuts of its own
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Tab") keepFocus(panel, event);
    else if (event.target.matches(".lm-item-scroll")) return;
    else if (event.key === "ArrowRight") move(panel, panel.options.onNext);
    else if (event.key === "ArrowLeft") move(panel, panel.options.onPrevious);
    else return;
    if (event.key !== "Tab") event.preventDefault();
  }

  /** Let the focus go from the last control to the first and back, instead of leaving the page. */
  function keepFocus(panel, event) {
    const controls = [...panel.dialog.querySelectorAll("a[href], button:not([disabled]), input, summary, [tabindex='0']")]
      .filter((control) => control.getClientRects().length);
    const active = panel.dialog.getRootNode().activeElement;
    const end = event.shiftKey ? controls[0] : controls.at(-1);
    if (active !== end && panel.dialog.contains(active) && active !== panel.dialog) return;
    if (active === panel.dialog && !event.shiftKey) return;
    event.preventDefault();
    (event.shiftKey ? controls.at(-1) : controls[0])?.focus();
  }

  function showItem(panel, itemId) {
    Object.assign(panel, { itemId, frame: null, details: null, picture: null, unblurred: false, boxes: [] });
    Object.assign(panel, { stripList: null, stripNote: null, moreFrames: null });
    panel.strip = { shown: 0, pictures: new Map() };
    const previousFocus = panel.dialog.getRootNode().activeElement?.dataset?.control;
    panel.error = h("div", { class: "lm-message lm-error", role: "alert", hidden: true });
    panel.parts = Object.fromEntries(
      ["title", "status", "stage", "toggles", "strip", "results"].map((name) => [name, h("div", { class: `lm-item-${name}` })]),
    );
    panel.heading = h("h3", { tabindex: "-1" }, "Loading …");
    const control = (name, label, action, enabled) =>
      h("button", { type: "button", "data-control": name, onclick: action, disabled: !enabled }, label);
    panel.dialog.replaceChildren(
      h("header", { class: "lm-item-head" }, panel.heading,
        control("previous", "← Previous", () => move(panel, panel.options.onPrevious), panel.options.onPrevious),
        control("next", "Next →", () => move(panel, panel.options.onNext), panel.options.onNext),
        control("close", "Close ✕", () => closeByUser(panel), true)),
      h("div", { class: "lm-item-body" },
        h("div", { class: "lm-item-left" }, panel.error, panel.parts.stage, panel.parts.toggles, panel.parts.strip),
        h("div", { class: "lm-item-right", tabindex: "0", role: "region", "aria-label": "Results and facts" },
          panel.parts.status, panel.parts.results)),
    );
    (panel.dialog.querySelector(`[data-control="${previousFocus}"]:not([disabled])`) ?? panel.heading).focus();
    drawStage(panel);
    read(panel, "details", { item_id: itemId });
    read(panel, "picture", { item_id: itemId });
  }

  function read(panel, method, params) {
    panel.connection.call(method, params).catch((error) => fail(panel, error));
  }

  function fail(panel, error) {
    panel.error.textContent = [error.message, error.hint].filter(Boolean).join(" ");
    panel.error.hidden = false;
  }

  function gotDetails(panel, details) {
    if (details.problem !== undefined) {
      panel.heading.textContent = panel.itemId;
      fail(panel, { message: details.problem, hint: details.hint });
      return;
    }
    const isFirst = panel.details === null;
    panel.details = details;
    panel.heading.textContent = details.name;
    panel.dialog.setAttribute("aria-label", details.name);
    panel.parts.status.replaceChildren(...statusLines(panel));
    panel.parts.results.replaceChildren(...results(details));
    for (const scroller of panel.parts.results.querySelectorAll(".lm-item-scroll")) {
      if (scroller.scrollWidth > scroller.clientWidth) scroller.tabIndex = 0; // so that the keyboard can scroll it
    }
    if (isFirst) drawStrip(panel);
    const whole = Object.keys(details.tables).some((name) => !["prechecks", "errors"].includes(name));
    if (isFirst && details.frames.length && !whole && details.status === "ok") showFrame(panel, details.frames[0]);
    else drawStage(panel);
  }

  function gotPicture(panel, picture) {
    panel.picture = picture;
    drawStage(panel);
  }

  // The picture and its boxes.

  const isBlurred = (panel) => panel.details !== null && panel.details.blurred && !panel.unblurred;

  function drawStage(panel) {
    const { picture, details } = panel;
    const note = (text) => h("p", { class: "lm-note", role: "status" }, text);
    if (picture === null || details === null) {
      panel.parts.stage.replaceChildren(h("div", { class: "lm-item-wait" }, note("Loading the picture …")));
      return;
    }
    const place = panel.frame === null ? "" : `, frame ${panel.frame}`;
    const reason = picture.reason && note(picture.is_thumbnail ? `Only the kept thumbnail: ${picture.reason}` : picture.reason);
    if (!picture.src) {
      panel.parts.stage.replaceChildren(h("div", { class: "lm-item-wait" }, reason || note("There is no picture.")));
      drawToggles(panel);
      return;
    }
    const blurred = isBlurred(panel);
    const img = h("img", {
      src: blurred ? picture.blurred : picture.src, draggable: "false",
      alt: blurred ? `${details.name}${place}, blurred` : `${details.name}${place}`,
    });
    const frame = h("div", { class: blurred ? "lm-item-picture lm-item-blurred" : "lm-item-picture" }, img);
    const size = details.size ?? (picture.width ? [picture.width, picture.height] : null);
    setAspect(frame, img, size);
    panel.boxes = size || details.boxes.every((box) => box.unit === "share") ? details.boxes : [];
    if (panel.boxes.length && !blurred) frame.append(...overlay(panel.boxes, size ?? [1, 1], sourcesOf(panel)));
    const ask = details.blurred &&
      h("button", { type: "button", "data-control": "unblur", onclick: () => unblur(panel) }, blurred ? "Show the picture" : "Blur");
    const why = details.blurred && (blurred ? "Blurred: it is likely NSFW." : "Likely NSFW.");
    const question = ask && h("p", { class: "lm-item-ask" }, why, " ", ask);
    panel.parts.stage.replaceChildren(...[frame, question, reason].filter(Boolean));
    drawToggles(panel);
  }

  function setAspect(frame, img, size) {
    const apply = (width, height) => {
      frame.style.setProperty("--lm-ratio", width / height);
      frame.style.setProperty("--lm-width", `${Math.max(width, 420)}px`);
    };
    if (size) apply(...size);
    else img.onload = () => apply(img.naturalWidth, img.naturalHeight);
  }

  function unblur(panel) {
    panel.unblurred = !panel.unblurred;
    drawStage(panel);
    drawStripPictures(panel);
    panel.dialog.querySelector('[data-control="unblur"]')?.focus();
  }

  const sourcesOf = (panel) => [...new Set(panel.details.boxes.map((box) => box.source))].sort();
  const isHidden = (box) => hidden.has(`kind ${box.kind}`) || hidden.has(`source ${box.source}`);
  const sourceName = (source) => source || "unnamed back end";
  const lineStyle = (sources, source) => {
    const at = sources.indexOf(source);
    return { color: COLORS[at % COLORS.length], dash: DASHES[at % DASHES.length] };
  };

  /** Return the boxes as SVG over a picture, and their labels as HTML; corners become shares of `size`. */
  function overlay(boxes, size, sources) {
    const drawn = svg("svg", { class: "lm-item-boxes", viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    const labels = h("div", { class: "lm-item-labels" });
    const visible = boxes.filter((box) => !isHidden(box));
    for (const box of visible) {
      const [width, height] = box.unit === "share" ? [1, 1] : size;
      const corners = box.corners.map(([x, y]) => [x / width, y / height]);
      const points = corners.map((corner) => corner.join(",")).join(" ");
      const { color, dash } = lineStyle(sources, box.source);
      const name = `${box.kind === "face" ? "" : `${box.kind}: `}${box.label}`;
      drawn.append(
        svg("polygon", { points, class: "lm-item-halo" }),
        svg("polygon", { points, class: "lm-item-box", "data-kind": box.kind, "data-source": box.source, stroke: color,
          "stroke-dasharray": dash || null }, svg("title", {}, `${name} (${sourceName(box.source)})`)),
      );
      if (visible.length > MANY_BOXES || hidden.has("labels")) continue;
      const label = h("span", { class: `lm-item-label lm-item-label-${box.kind}` }, name);
      const across = corners.map(([x]) => x);
      const down = corners.map(([, y]) => y);
      const left = Math.min(...across);
      label.style.setProperty(left > 0.6 ? "right" : "left", left > 0.6 ? `${100 * (1 - Math.max(...across))}%` : `${100 * left}%`);
      const top = box.kind === "brand" ? Math.max(...down) : Math.min(...down);
      label.style.top = `${100 * Math.min(1, Math.max(0, top))}%`;
      label.style.borderColor = color;
      labels.append(label);
    }
    return [drawn, labels];
  }

  function drawToggles(panel) {
    const { details, boxes = [] } = panel;
    if (!details) return;
    const missing = details.boxes.length && !boxes.length
      ? [h("p", { class: "lm-note" }, "The size of the picture is unknown, so its boxes cannot be drawn.")] : [];
    if (!details.boxes.length || isBlurred(panel)) {
      const hasPlaces = details.kind === "video" && panel.frame === null && ["faces", "texts", "brands"].some((name) => details.tables[name]);
      panel.parts.toggles.replaceChildren(...(hasPlaces ? [h("p", { class: "lm-note" }, "Choose a frame to see the boxes on it.")] : []));
      return;
    }
    const sources = sourcesOf(panel);
    const count = (test) => boxes.filter(test).length;
    const toggle = (key, ...label) =>
      h("label", {}, h("input", {
        type: "checkbox", checked: !hidden.has(key), "data-toggle": key,
        onchange: (event) => {
          if (event.target.checked) hidden.delete(key);
          else hidden.add(key);
          drawStage(panel);
          panel.parts.toggles.querySelector(`[data-toggle="${CSS.escape(key)}"]`)?.focus();
        },
      }), ...label);
    const sample = (source) => {
      const { color, dash } = lineStyle(sources, source);
      return svg("svg", { width: 30, height: 8, "aria-hidden": "true" },
        svg("line", { x1: 0, y1: 4, x2: 30, y2: 4, stroke: color, "stroke-width": 3, "stroke-dasharray": dash || null }));
    };
    panel.parts.toggles.replaceChildren(...missing, ...(boxes.length ? [
      h("fieldset", {}, h("legend", {}, "Boxes"),
        Object.entries(KINDS).filter(([kind]) => count((box) => box.kind === kind)).map(([kind, name]) =>
          toggle(`kind ${kind}`, `${name} (${count((box) => box.kind === kind)})`)),
        toggle("labels", boxes.length > MANY_BOXES ? `Labels (up to ${MANY_BOXES} boxes)` : "Labels")),
      h("fieldset", {}, h("legend", {}, "Back ends"),
        sources.map((source) => toggle(`source ${source}`, sample(source), `${sourceName(source)} (${count((box) => box.source === source)})`))),
    ] : []));
  }

  // The frames of a video.

  const clock = (seconds) => {
    const [minutes, rest] = [Math.floor(seconds / 60), seconds % 60];
    return minutes ? `${minutes}:${String(Math.floor(rest)).padStart(2, "0")} min` : `${Number(rest.toFixed(1))} s`;
  };

  function drawStrip(panel) {
    const { frames, kind } = panel.details;
    if (kind !== "video") return;
    if (!frames.length) {
      panel.parts.strip.replaceChildren(h("p", { class: "lm-note" }, "No frames of this video were analyzed."));
      return;
    }
    const more = panel.details.more_frames;
    panel.stripList = h("div", { class: "lm-item-frames", role: "group", "aria-label": "Frames" }, frameButton(panel, null));
    panel.moreFrames = h("button", { type: "button", onclick: () => addFrames(panel) });
    panel.stripNote = h("p", { class: "lm-note", role: "status" });
    panel.parts.strip.replaceChildren(h("h4", {}, plural(frames.length + more, "frame")), panel.stripList, panel.moreFrames, panel.stripNote);
    addFrames(panel);
  }

  function addFrames(panel) {
    const { frames, item_id, more_frames } = panel.details;
    const next = frames.slice(panel.strip.shown, panel.strip.shown + STRIP_FRAMES);
    panel.strip.shown += next.length;
    panel.stripList.append(...next.map((entry) => frameButton(panel, entry)));
    const left = frames.length - panel.strip.shown;
    panel.moreFrames.textContent = `${Math.min(left, STRIP_FRAMES)} more of ${left.toLocaleString("en-US")} frames`;
    panel.moreFrames.hidden = left === 0;
    if (!left && more_frames) panel.stripNote.textContent = `${plural(more_frames, "further frame")}: see the tables.`;
    const times = Object.fromEntries(next.map((entry) => [entry.frame, entry.time_s]));
    read(panel, "strip", { item_id, times_s: times });
  }

  function frameButton(panel, entry) {
    const label = entry === null ? ["Whole video"] : [`${entry.frame}`, h("span", {}, clock(entry.time_s))];
    return h("button", {
      type: "button", class: "lm-item-frame", "data-frame": entry === null ? "whole" : entry.frame,
      "aria-pressed": String(panel.frame === (entry?.frame ?? null)),
      "aria-label": entry === null ? "Whole video" : `Frame ${entry.frame} at ${clock(entry.time_s)}`,
      onclick: () => showFrame(panel, entry),
    }, h("span", { class: "lm-item-shot" }), h("span", { class: "lm-item-time" }, label));
  }

  function showFrame(panel, entry) {
    const frame = entry?.frame ?? null;
    Object.assign(panel, { frame, picture: null });
    panel.error.hidden = true;
    for (const button of panel.stripList.children) {
      button.setAttribute("aria-pressed", String(button.dataset.frame === (entry === null ? "whole" : String(frame))));
    }
    const item = { item_id: panel.itemId };
    read(panel, "details", { ...item, frame });
    read(panel, "picture", { ...item, frame, time_s: entry?.time_s ?? null });
  }

  function gotStrip(panel, picture) {
    panel.strip.pictures.set(String(picture.frame), picture);
    if (picture.reason && panel.stripNote && !panel.stripNote.textContent) panel.stripNote.textContent = picture.reason;
    drawStripPictures(panel);
  }

  function drawStripPictures(panel) {
    for (const button of panel.stripList?.children ?? []) {
      const first = String(panel.details.frames[0].frame);
      const picture = panel.strip.pictures.get(button.dataset.frame === "whole" ? first : button.dataset.frame);
      const src = picture && (isBlurred(panel) ? picture.blurred : picture.src);
      const shot = button.firstChild;
      if (src && shot.firstChild?.getAttribute?.("src") !== src) shot.replaceChildren(h("img", { src, alt: "" }));
    }
  }

  // Status, results and facts.

  const words = (text) => text.replaceAll("_", " ");

  function statusLines(panel) {
    const details = panel.details;
    const mark = h("i", { class: "lm-mark" });
    mark.style.background = STATUS_COLORS[details.status] ?? "transparent";
    const where = panel.frame === null ? "" : ` · frame ${panel.frame}`;
    const lines = [h("p", { class: "lm-item-state" }, mark, h("b", {}, words(details.status)),
      details.reason ? ` · ${words(details.reason)}` : "", details.kind ? ` · ${details.kind}` : "", where,
      details.credits === null ? "" : ` · ${number(details.credits)} ${details.credits === 1 ? "credit" : "credits"}`)];
    if (details.error) lines.push(h("div", { class: details.status === "failed" ? "lm-message lm-error" : "lm-message" }, details.error));
    if (details.duplicate_of) {
      const { item_id } = details.duplicate_of;
      lines.push(h("p", {}, "Duplicate of ",
        h("button", { type: "button", class: "lm-item-link", onclick: () => showItem(panel, item_id) }, item_id),
        ", whose results it shares."));
    }
    if (details.href) lines.push(h("p", {}, h("a", { href: details.href, target: "_blank", rel: "noreferrer" }, "Open original ↗")));
    if (details.path) lines.push(h("p", {}, "File: ", h("code", {}, details.path)));
    return lines;
  }

  function results(details) {
    const { tables } = details;
    const parts = [];
    const add = (title, isOpen, ...content) => parts.push(h("details", { open: isOpen }, h("summary", {}, title), ...content));
    const addRows = (name, title, isOpen = true, format = OURS) => {
      if (tables[name]) add(`${title} (${countText(tables[name])})`, isOpen, rowTable(title, tables[name], format));
    };
    if (tables.tags) add(`Tags by back end (${details.tags.rows.length})`, true, tagTable(details.tags));
    addRows("nsfw", "NSFW by back end");
    if (tables.colors) add("Colors", true, ...palettes(tables.colors), h("details", {}, h("summary", {}, "Values"), rowTable("Colors", tables.colors)));
    addRows("descriptions", "Descriptions");
    addRows("faces", "Faces");
    addRows("texts", "Texts");
    addRows("brands", "Brands");
    for (const name of Object.keys(tables).filter((name) => name.startsWith("answers_"))) addRows(name, `Answers: ${name.slice(8)}`, true, OWN);
    addRows("errors", "Errors of back ends");
    addRows("prechecks", "Pre-check findings", tables.prechecks?.rows.some((row) => row.severity !== "info"));
    if (!parts.length) parts.push(h("p", { class: "lm-note" }, "The tables have no results about it."));
    for (const request of details.requests) add("Request", false, pairTable("Request", Object.entries(request).filter(([, value]) => value !== null)));
    if (details.own_columns.length) add("Columns of the manifest", true, pairTable("Columns of the manifest", details.own_columns, OWN));
    add("Facts", false, pairTable("Facts", details.facts));
    return parts;
  }

  const countText = ({ rows, more }) => (more ? `first ${rows.length}` : String(rows.length));
  // Three digits are enough for a score; the whole part of a greater number is never rounded.
  const number = (value) => (Number.isInteger(value) || Math.abs(value) >= 100
    ? value.toLocaleString("en-US", { maximumFractionDigits: 1 }) : String(Number(value.toPrecision(3))));

  function cell(value) {
    if (value === null || value === undefined) return "-";
    if (typeof value === "number") return number(value);
    if (Array.isArray(value) && value.every((pair) => Array.isArray(pair))) {
      return value.map(([name, score]) => `${name} ${cell(score)}`).join(", "); // a map of Arrow, such as emotions
    }
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  /** Return a value of the user's own, such as a coordinate or an id, with all its digits. */
  const exactCell = (value) => (typeof value === "number" ? String(value) : cell(value));

  // How a table shows its values and the names of its columns: those of our tables, and the user's own.
  const OURS = { toText: cell, toName: words };
  const OWN = { toText: exactCell, toName: (name) => name };

  const isNumberColumn = (rows, name) => rows.some((row) => typeof row[name] === "number");

  function rowTable(title, { rows }, { toText, toName } = OURS) {
    const names = Object.keys(rows[0]).filter((name) => rows.some((row) => row[name] !== null));
    const css = (name) => (isNumberColumn(rows, name) ? "lm-number" : null);
    const shown = (name, value) => [name === "hex" && swatch(value), name === "severity" && typeof value === "number" && bar(value), toText(value)];
    return h("div", { class: "lm-item-scroll" }, h("table", { class: "lm-table", "aria-label": title },
      h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: css(name) }, toName(name))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, names.map((name) => h("td", { class: css(name) }, shown(name, row[name]))))))));
  }

  function pairTable(title, pairs, { toText, toName } = OURS) {
    return h("table", { class: "lm-table lm-item-pairs", "aria-label": title },
      h("tbody", {}, pairs.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, toName(name)), h("td", {}, toText(value))))));
  }

  function bar(share) {
    const fill = h("i", {});
    fill.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
    return h("span", { class: "lm-item-bar", "aria-hidden": "true" }, fill);
  }

  function swatch(color) {
    const mark = h("i", { class: "lm-mark" });
    if (/^#[0-9a-f]{6}$/i.test(color ?? "")) mark.style.background = color;
    return mark;
  }

  function palettes({ rows }) {
    return [...new Set(rows.map((row) => row.source))].map((source) => {
      const colors = rows.filter((row) => row.source === source && /^#[0-9a-f]{6}$/i.test(row.hex ?? ""))
        .map((row) => [row.hex, row.pixel_fraction ?? row.score ?? 0]).sort((one, two) => two[1] - one[1]);
      const strip = h("div", { class: "lm-strip", role: "img",
        "aria-label": colors.map(([color, share]) => `${color} ${percent(share)}`).join(", ") || "no colors" });
      for (const [color, share] of colors) {
        const part = h("i", { title: `${color} ${percent(share)}` });
        part.style.background = color;
        part.style.flex = `${100 * Math.max(0, share)} 1 0`;
        strip.append(part);
      }
      return h("div", { class: "lm-item-palette" }, h("span", {}, sourceName(source)), strip);
    });
  }

  /** Return the table tag × back end with scores; a click on a column's name sorts by it. */
  function tagTable({ sources, rows }) {
    const agreement = (row) => sources.filter((source) => source in row.scores).length;
    const score = (row, source) => (source in row.scores ? row.scores[source] ?? 0 : -1);
    const columns = [
      { name: "tag", of: (row) => row.name.toLowerCase(), first: "ascending" },
      ...sources.map((source) => ({ name: sourceName(source), source, of: (row) => score(row, source), first: "descending" })),
      ...(sources.length > 1 ? [{ name: "agree", of: agreement, first: "descending" }] : []),
    ];
    const body = h("tbody");
    const heads = columns.map((column) => h("th", { scope: "col", class: column.source === undefined ? null : "lm-number" },
      h("button", { type: "button", onclick: () => sort(column) }, column.name)));
    const line = (row) => h("tr", {}, h("th", { scope: "row" }, row.name),
      sources.map((source) => h("td", { class: "lm-number" }, tagScore(row, source))),
      sources.length > 1 && h("td", { title: `${agreement(row)} of ${sources.length} back ends` },
        h("span", { "aria-hidden": "true" }, "●".repeat(agreement(row)) + "○".repeat(sources.length - agreement(row))),
        ` ${agreement(row)} of ${sources.length}`));
    function sort(column) {
      const head = heads[columns.indexOf(column)];
      const order = head.getAttribute("aria-sort") === column.first ? { ascending: "descending", descending: "ascending" }[column.first] : column.first;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const sorted = [...rows].sort((one, two) => sign * (column.of(one) < column.of(two) ? -1 : column.of(one) > column.of(two) ? 1 : 0));
      body.replaceChildren(...sorted.map(line));
    }
    body.append(...rows.map(line));
    return h("div", { class: "lm-item-scroll" },
      h("table", { class: "lm-table lm-item-tags", "aria-label": "Tags by back end" }, h("thead", {}, h("tr", {}, heads)), body));
  }

  function tagScore(row, source) {
    if (!(source in row.scores)) return "-";
    return row.scores[source] === null ? "yes" : [bar(row.scores[source]), number(row.scores[source])];
  }

  return show;
})();
