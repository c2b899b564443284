// The live page of a run: it shows the snapshots of the view-model, and sends nothing.

const STATUSES = { ok: "ok", duplicate: "duplicate", skipped: "skipped", failed: "failed", in_doubt: "in doubt",
  over_budget: "over budget", pending: "pending" };
const PHASES = { checked: "Check rows", sending: "Send", collecting: "Collect answers", reconciling: "Prove charges",
  tables: "Write tables", done: "Done" };
const STATES = { running: ["●", "Running"], stopped: ["■", "Stopped"], finished: ["✓", "Finished"],
  planned: ["○", "Not started"], checked: ["✓", "Only checked"] };
const OPEN_STATES = { held: "about to be sent", sent: "sent", acked: "accepted, not answered yet", answered: "answered, being settled",
  polled: "answered, being settled", uncertain: "in doubt", ambiguous: "in doubt, not proven", charge_unknown: "failed, charge not known" };

const SHORT_S = 600; // the time axis of a shorter run shows seconds

/** Return a number with separators, and at most `decimals` decimals. */
function number(value, decimals = 0) {
  return value.toLocaleString("en-US", { maximumFractionDigits: decimals });
}

/** Return a number in few characters for an axis: `1.5M`. */
function compact(value) {
  return value.toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 });
}

/** Return seconds as a short text: `40 s`, `12 min`, `3.5 h`. */
function duration(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600, 1)} h` : `${number(seconds / 86400, 1)} days`;
}

/** Return the time of day of seconds since the epoch, with the date if it is another day; `more` formats seconds too. */
function clockTime(seconds, more = {}) {
  const time = new Date(seconds * 1000);
  const text = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...more });
  return time.toDateString() === new Date().toDateString() ? text : `${time.toLocaleDateString()} ${text}`;
}

/** Return a table with a caption; the cells of `rows` are texts, and numbers at the right. */
function table(caption, titles, rows) {
  const cell = (value, tag = "td") => h(tag, { class: typeof value === "number" && "lm-number" },
    typeof value === "number" ? number(value) : value);
  return h("div", { class: "lm-scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: "lm-table" }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, titles.map((title, index) =>
        h("th", { scope: "col", class: typeof rows[0]?.[index] === "number" && "lm-number" }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) => cell(value)))))));
}

/** Return a small block with a figure, its unit and a note. */
function figure(title, value, note) {
  return h("div", { class: "lm-figure" }, h("dt", {}, title), h("dd", {}, h("b", {}, value), note && h("span", {}, note)));
}

/** The name of the manifest, the state, and what to do next. */
function headSection({ manifest, folder, state, message, next_steps, notes, rows }) {
  const [mark, word] = STATES[state];
  const { pending, over_budget } = rows.counts;
  const why = state === "stopped" && over_budget && !pending ? `: ${plural(over_budget, "row")} over budget` : "";
  return [
    h("h2", {}, manifest, h("span", { class: `lm-state lm-${state}`, role: "status" }, `${mark} ${word}${why}`)),
    h("p", { class: "lm-note" }, folder),
    message && h("div", { class: "lm-message" }, message),
    next_steps.length > 0 && h("ul", { "aria-label": "What is left to do" }, next_steps.map((step) => h("li", {}, step))),
    notes.map((note) => h("div", { class: "lm-message" }, note)),
  ];
}

/** The phases of a run, with a mark at the current one. */
function phaseSection({ phase, state }) {
  const current = Object.keys(PHASES).indexOf(phase);
  return h("ol", { class: "lm-phases", "aria-label": "Phases" }, Object.entries(PHASES).map(([name, title], index) => {
    if (name === "reconciling" && phase !== name) return null;
    const isDone = index < current || state === "finished";
    return h("li", { "aria-current": name === phase && "step", class: isDone && "lm-past" },
      `${isDone ? "✓ " : name === phase ? "▸ " : ""}${title}`);
  }));
}

/** The rows by status, as a strip and as a list with numbers. */
function rowSection({ rows }) {
  const shown = Object.entries(STATUSES).filter(([status]) => rows.counts[status]);
  const done = rows.total - ["pending", "over_budget", "in_doubt"].reduce((sum, status) => sum + rows.counts[status], 0);
  return [
    h("h3", {}, "Rows"),
    h("p", { class: "lm-lead" }, h("b", {}, number(done)), ` of ${plural(rows.total, "row")} done`),
    h("div", { class: "lm-strip", "aria-hidden": "true" }, shown.map(([status]) =>
      h("i", { class: `lm-fill-${status}`, style: `flex-grow:${rows.counts[status]}` }))),
    h("ul", { class: "lm-legend" }, shown.map(([status, title]) =>
      h("li", {}, h("i", { class: `lm-mark lm-fill-${status}`, "aria-hidden": "true" }), title, " ", h("b", {}, number(rows.counts[status]))))),
  ];
}

/** Credits paid, held and left. */
function creditSection({ credits, doubt }) {
  const { paid, held, budget, balance_before, balance_after } = credits;
  const left = budget === null ? null : Math.max(0, budget - paid - held);
  const cap = Math.max(budget ?? 0, paid + held, 1);
  return [
    h("h3", {}, "Credits"),
    h("p", { class: "lm-lead" }, h("b", {}, number(paid)), " paid", budget !== null && ` of at most ${number(budget)}`),
    h("div", { class: "lm-strip", "aria-hidden": "true" }, h("i", { class: "lm-fill-ok", style: `flex-grow:${paid / cap}` }),
      h("i", { class: "lm-fill-in_doubt", style: `flex-grow:${held / cap}` }), h("i", { style: `flex-grow:${(left ?? 0) / cap}` })),
    h("ul", { class: "lm-legend" },
      h("li", {}, h("i", { class: "lm-mark lm-fill-ok", "aria-hidden": "true" }), "paid ", h("b", {}, number(paid))),
      h("li", {}, h("i", { class: "lm-mark lm-fill-in_doubt", "aria-hidden": "true" }), "held ", h("b", {}, number(held))),
      left !== null && h("li", {}, h("i", { class: "lm-mark", "aria-hidden": "true" }), "left ", h("b", {}, number(left))),
      doubt.lost_credits > 0 && h("li", {}, "charged without an answer ", h("b", {}, number(doubt.lost_credits)))),
    balance_before !== null && h("p", { class: "lm-note" }, `balance before ${number(balance_before)}`,
      balance_after !== null && `, last read ${number(balance_after)}`),
  ];
}

/** The credits over time: what is left of the budget, or what was paid if there is none. */
function chartSection({ history, credits, started_at }) {
  if (!history.points.length) return null;
  const start = Math.min(started_at ?? Infinity, history.points[0][0] - history.interval_s);
  const span = Math.max(history.points.at(-1)[0] - start, 1);
  const top = Math.max(credits.budget ?? 0, history.points.at(-1)[2], 1);
  const value = (paid) => (credits.budget === null ? paid : credits.budget - paid);
  const x = (at) => (48 + (at - start) / span * 542).toFixed(1);
  const y = (amount) => (10 + (1 - amount / top) * 120).toFixed(1);
  let path = `M${x(start)} ${y(value(0))}`;
  for (const [at, , paid] of history.points) path += `H${x(at)}V${y(value(paid))}`;
  const last = history.points.at(-1);
  const time = (at) => clockTime(at, span < SHORT_S ? { second: "2-digit" } : {});
  const title = credits.budget === null ? "Credits paid" : "Credits left of the budget";
  const text = `${title}: from ${number(value(0))} at ${time(start)} to ${number(value(last[2]))} at ${time(last[0])}`;
  const label = (left, topAt, anchor, content) => svg("text", { x: left, y: topAt, "text-anchor": anchor }, content);
  return [
    h("h3", {}, title),
    svg("svg", { class: "lm-chart", viewBox: "0 0 600 154", role: "img", "aria-label": text },
      [0, top / 2, top].map((amount) => [svg("line", { x1: 48, x2: 590, y1: y(amount), y2: y(amount) }),
        label(43, Number(y(amount)) + 4, "end", compact(amount))]),
      svg("path", { d: `${path}V${y(0)}H${x(start)}Z`, class: "lm-area" }), svg("path", { d: path }),
      label(48, 149, "start", time(start)), label(590, 149, "end", time(last[0]))),
  ];
}

/** Rates of the last minute, and the time that is left. */
function rateSection({ rates, eta_s, requests, state, rows }) {
  const { rate, cap } = rates.learned;
  const learned = rate ? `${number(rate, 1)} requests/s` : cap ? `${number(cap)} at a time` : null;
  const eta = !eta_s ? "not known" : eta_s[1] === null ? `${duration(eta_s[0])} or more` : `${duration(eta_s[0])} – ${duration(eta_s[1])}`;
  const isIdle = state !== "running";
  return [
    h("h3", {}, isIdle ? "Requests" : `Last ${duration(rates.seconds)}`),
    h("dl", { class: "lm-figures" },
      !isIdle && figure("Time left", rows.counts.pending ? eta : "–", rows.counts.pending > 0 && eta_s && "95 % range"),
      !isIdle && figure("Rows", number(rates.rows, 1), "per second"),
      !isIdle && figure("Requests", number(rates.sent, 1), "sent per second"),
      !isIdle && figure("Refused by the rate limit", number(rates.throttled, 1), "per second"),
      learned && figure("Learned limit", learned, "at the last end of a process"),
      figure("Requests so far", number(requests.sent), "sent")),
  ];
}

/** Requests without a known outcome, and answers that wait at the service. */
function openSection({ requests, doubt, waiting }) {
  const rows = requests.open.map(({ state, requests: count, rows: inside, credits }) =>
    [OPEN_STATES[state] ?? state, count, inside, credits]);
  if (doubt.lost_requests) rows.push(["charged, never answered", doubt.lost_requests, "", doubt.lost_credits]);
  if (!rows.length) return null;
  return [
    table("Requests without an outcome", ["state", "requests", "rows", "credits at most"], rows),
    doubt.requests > 0 && h("p", {}, `${plural(doubt.rows, "row")} in doubt: sent, no answer, and the charge is not known.`),
    waiting.requests > 0 && table(`Answers that wait at the service: ${number(waiting.requests)}`, ["request", "rows", "collect before"],
      waiting.first.map(({ request_id, rows: count, until }) => [request_id ?? "", count, `${clockTime(until)} (in ${duration(until - Date.now() / 1000)})`])),
  ];
}

/** Why rows failed or were not sent. */
function reasonSection({ reasons }) {
  return reasons.length > 0 && table("Reasons", ["status", "reason", "rows", "example"],
    reasons.map(({ status, reason, rows, example }) => [STATUSES[status] ?? status, reason, rows, example]));
}

/** Links to the report and to the pictures, and the names of the tables. */
function linkSection({ tables, report, folder }) {
  const token = new URLSearchParams(location.search).get("token");
  const query = `lightmeter sql ${/[^\w/.-]/.test(folder) ? `'${folder.replaceAll("'", "'\\''")}'` : folder}`;
  return [
    h("h3", {}, "Results"),
    h("ul", {},
      token && h("li", {}, h("a", { href: "#explorer" }, "Gallery of the pictures")),
      h("li", {}, report && token ? h("a", { href: `/report?token=${encodeURIComponent(token)}`, target: "_blank", rel: "noopener" }, "Report")
        : ["Report: ", h("code", {}, query.replace(" sql ", " report "))]),
      h("li", {}, tables.length ? `Tables: ${tables.join(", ")}; ` : "The tables are not written yet. ",
        tables.length > 0 && h("code", {}, `${query} "SELECT * FROM ${tables[0]} LIMIT 10"`))),
  ];
}

const SECTIONS = { head: headSection, phases: phaseSection, rows: rowSection, credits: creditSection, chart: chartSection,
  rates: rateSection, open: openSection, reasons: reasonSection, links: linkSection };

function render({ model, el }) {
  const connection = connect(model);
  const problem = h("div", { class: "lm-message lm-error", role: "alert", hidden: true });
  const age = h("p", { class: "lm-note lm-age" });
  const sections = Object.fromEntries(Object.keys(SECTIONS).map((name) => [name, h("section", { class: `lm-live-${name}`, hidden: true })]));
  const reading = h("p", {}, "Reading the journal …");
  el.append(h("div", { class: "lightmeter lm-live" }, errorLine(connection), problem, reading, Object.values(sections), age));
  const shown = {};
  const showAge = () => {
    const { last_at } = connection.get("snapshot");
    age.textContent = last_at ? `Last change ${clockTime(last_at)}, ${duration(Date.now() / 1000 - last_at)} ago.` : "";
  };
  connection.watch(["snapshot"], () => {
    const snapshot = connection.get("snapshot");
    const { error } = snapshot;
    problem.hidden = !error;
    problem.textContent = error ? `${error.message} ${error.hint}` : "";
    reading.hidden = error || snapshot.state !== undefined;
    if (snapshot.state === undefined) return;
    for (const [name, section] of Object.entries(sections)) {
      const content = h("div", {}, SECTIONS[name](snapshot));
      if (shown[name] === content.outerHTML) continue; // (keeps focus and selected text)
      shown[name] = content.outerHTML;
      section.replaceChildren(...content.childNodes);
      section.hidden = !section.childNodes.length;
    }
    showAge();
  });
  const timer = setInterval(showAge, 1000);
  return () => {
    clearInterval(timer);
    connection.close();
  };
}

export default { render };
