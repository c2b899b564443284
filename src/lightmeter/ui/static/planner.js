// The planner: a form with the price beside it, the button that spends, and the progress of the run.

const DUPLICATES = { off: "pay for each row", exact: "equal files share answers", near: "look-alikes share too" };
const SAMPLES = { order: "first rows first", random: "random rows", diverse: "most different rows" };
const STRATIFIED = "stratified:";
const LABELS = {
  exact: "The price is exact.",
  bound: "The price cannot leave this range.",
  estimate: "A guess: planning again gives the price.",
};
const BUDGET_WORDS = {
  clear: ["good", "will not be reached"],
  maybe: ["", "may be reached"],
  reached: ["error", "will be reached before the last row"],
};
const PAGE_STATES = { idle: "", planning: "Planning …", running: "Running …", stopping: "Stopping …" };

const SETTLE_MS = 600; // after that time without a change, the values come from the view-model again

let planners = 0; // ids of fields stay unique with several planners on one page

/** Return a whole number with thousands separators. */
function count(value) {
  return value.toLocaleString("en-US");
}

/** Return credits as dollars: one credit is one cent. */
function dollars(credits) {
  return (credits / 100).toLocaleString("en-US", { style: "currency", currency: "USD" });
}

/** Return millicredits as an exact number of credits: 1150 is `1.15`. */
function exactCredits(millicredits) {
  return (millicredits / 1000).toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** Return a range in words: `12`, `12 to 20`, `at least 12`. */
function rangeText({ low, high }, show = count) {
  if (high === null) return `at least ${show(low)}`;
  return low === high ? show(low) : `${show(low)} to ${show(high)}`;
}

/** Return the mark that says how far an amount can be trusted. */
function trust(label) {
  return h("span", { class: `lm-trust lm-${label}`, title: LABELS[label] }, label);
}

/** Return a table row of header cell and data cells; numbers stand right. */
function tableRow(name, ...cells) {
  const data = cells.map((cell) => h("td", { class: typeof cell === "string" ? "lm-number" : null }, cell));
  return h("tr", {}, h("th", { scope: "row" }, name), data);
}

/** Return a table with a caption and column names. */
function dataTable(caption, columns, rows) {
  const isNumber = (at) => rows[0]?.children[at]?.classList.contains("lm-number");
  const head = columns.map((name, at) => h("th", { scope: "col", class: isNumber(at) && "lm-number" }, name));
  return h("div", { class: "lm-scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", { class: "lm-table" }, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, rows)));
}

/** Return a highlighted sentence; `mood` is `good`, `error` or empty. */
function message(text, mood = "", hint = "") {
  return h("div", { class: `lm-message${mood && ` lm-${mood}`}` }, hint ? `${text} ${hint}` : text);
}

/** Return a sum of credits with its dollars: `588 credits ($5.88)`. */
function creditsText(credits) {
  return `${plural(credits, "credit")} (${dollars(credits)})`;
}

/** The form: fields, and the matrix of back ends and features with their prices. */
class PlannerForm {
  constructor(connection, onValidity) {
    this.connection = connection;
    this.onValidity = onValidity; // is called after each change, as `isValid` may have changed
    this.id = `lm-planner-${planners++}`;
    this.values = connection.get("form");
    this.isWriting = false;
    this.endWriting = debounce(() => {
      this.isWriting = false;
      this.receive();
    }, SETTLE_MS);
    this.matrix = h("div", { class: "lm-scroll", onscroll: () => this.showEdges() });
    this.edges = new ResizeObserver(() => this.showEdges());
    this.edges.observe(this.matrix);
    this.fields = h("div", { class: "lm-fields" });
    this.element = h("form", { class: "lm-form", "aria-label": "Options", onsubmit: (event) => event.preventDefault() },
      h("h3", {}, "What to ask for"), this.matrix, this.fields);
    this.buildFields();
  }

  set(name, value) {
    this.values = { ...this.values, [name]: value };
    this.isWriting = true;
    this.endWriting();
    this.connection.set("form", this.values);
    this.show();
  }

  /** Take over the values of the view-model, but not while the user types: they may be older than what was typed. */
  receive() {
    if (this.isWriting) return;
    this.values = this.connection.get("form");
    this.show();
  }

  field(name, text, input) {
    const id = `${this.id}-${name}`;
    input.id = id;
    input.dataset.option = name;
    return h("div", { class: "lm-field" }, h("label", { for: id }, text), input);
  }

  number(name, text, attributes) {
    const change = (event) => {
      if (event.target.validity.valid) this.set(name, event.target.valueAsNumber);
      else this.showValidity();
    };
    const input = h("input", { type: "number", required: true, ...attributes, oninput: change });
    const field = this.field(name, text, input);
    const kind = attributes.step === 1 ? "A whole number" : "A number";
    const most = attributes.max === undefined ? "or more" : `to ${attributes.max}`;
    field.append(h("p", { class: "lm-problem", role: "alert", id: `${input.id}-problem`, hidden: true },
      `${kind}, ${attributes.min} ${most}.`));
    input.setAttribute("aria-describedby", `${input.id}-problem`);
    return field;
  }

  /** Whether all visible fields have allowed values; the view-model never gets any other value. */
  get isValid() {
    return this.numbers().every((input) => input.validity.valid || input.parentElement.hidden);
  }

  numbers() {
    return [...this.fields.querySelectorAll("input[type=number]")];
  }

  /** Show at each field with a value that is not allowed what is allowed. */
  showValidity() {
    for (const input of this.numbers()) {
      input.setAttribute("aria-invalid", String(!input.validity.valid));
      input.parentElement.querySelector(".lm-problem").hidden = input.validity.valid;
    }
    this.onValidity();
  }

  select(name, text, options) {
    const change = (event) => this.set(name, event.target.value);
    return this.field(name, text, h("select", { onchange: change }, options));
  }

  text(name, text, tag = "input") {
    return this.field(name, text, h(tag, { oninput: (event) => this.set(name, event.target.value) }));
  }

  buildFields() {
    const options = (words) => Object.entries(words).map(([value, text]) =>
      h("option", { value }, `${value}: ${text}`));
    this.described = h("fieldset", {}, h("legend", {}, "Descriptions"),
      this.select("role", "Role", []), this.text("language", "Language"), this.text("prompt", "Prompt", "textarea"));
    this.question = h("p", { class: "lm-note" }, "The question of the option ask is sent as the prompt.");
    this.seed = this.number("sample_seed", "Seed", { min: 0, step: 1 });
    this.capped = h("input", { type: "checkbox", id: `${this.id}-capped`,
      onchange: (event) => this.set("budget", event.target.checked ? this.lastBudget ?? 0 : null) });
    this.budget = this.number("budget", "Budget in credits", { min: 0, step: 1 });
    this.described.append(this.question);
    this.fields.append(
      h("fieldset", {}, h("legend", {}, "Videos and tags"),
        this.number("max_frames", "Frames per video, 0: all", { min: 0, step: 1 }),
        this.number("capture_interval", "Seconds between frames", { min: 1, step: 1 }),
        this.number("tag_score", "Least tag score", { min: 0, max: 1, step: "any" })),
      this.described,
      h("fieldset", {}, h("legend", {}, "Rows"),
        this.select("duplicates", "Duplicates", options(DUPLICATES)), this.select("sample", "Rows to pay first", []),
        this.seed),
      h("fieldset", {}, h("legend", {}, "Budget"),
        h("div", { class: "lm-check" }, this.capped, h("label", { for: this.capped.id }, "Cap what is spent")),
        this.budget));
  }

  /** Show a shadow at the edges of the matrix beyond which columns are hidden. */
  showEdges() {
    const { scrollLeft, clientWidth, scrollWidth } = this.matrix;
    this.matrix.classList.toggle("lm-more-left", scrollLeft > 1);
    this.matrix.classList.toggle("lm-more-right", scrollLeft + clientWidth < scrollWidth - 1);
  }

  showChoices() {
    const { features, backends, roles, embedded } = this.connection.get("choices");
    const tick = (list, name, text) => {
      const change = (event) => {
        const ticked = new Set(this.values[list]);
        if (event.target.checked) ticked.add(name);
        else ticked.delete(name);
        this.set(list, [...ticked]);
      };
      return h("label", {}, h("input", { type: "checkbox", "data-list": list, "data-name": name, onchange: change }),
        " ", text);
    };
    const rows = backends.map(({ name, local, millicredits }) =>
      h("tr", {}, h("th", { scope: "row" }, tick("backends", name, name),
        !embedded && local ? h("span", { class: "lm-note" }, " local") : null),
      features.map((feature) => h("td", { class: "lm-number", "data-pair": `${name} ${feature}` },
        millicredits[feature] === undefined ? "" : exactCredits(millicredits[feature])))));
    this.matrix.replaceChildren(h("table", { class: "lm-table lm-matrix" },
      h("caption", {}, "Credits for an image or frame"),
      h("thead", {}, h("tr", {}, h("td", {}),
        features.map((feature) => h("th", { scope: "col", class: "lm-feature" }, tick("features", feature, feature))))),
      h("tbody", {}, rows)));
    this.showEdges();
    this.input("role").replaceChildren(...roles.map((role) => h("option", { value: role }, role)));
    this.show();
  }

  showColumns() {
    const names = this.connection.get("columns");
    const { sample } = this.values;
    const values = [...new Set([...Object.keys(SAMPLES), ...names.map((name) => STRATIFIED + name), sample])];
    this.input("sample").replaceChildren(...values.map((value) => h("option", { value }, value.startsWith(STRATIFIED)
      ? `a share of each ${value.slice(STRATIFIED.length)}` : `${value}: ${SAMPLES[value]}`)));
    this.show();
  }

  input(name) {
    return this.fields.querySelector(`[data-option="${name}"]`);
  }

  show() {
    const values = this.values;
    const { has_question, sends_frames } = this.connection.get("choices");
    for (const box of this.matrix.querySelectorAll("input")) {
      box.checked = values[box.dataset.list].includes(box.dataset.name);
    }
    for (const cell of this.matrix.querySelectorAll("[data-pair]")) {
      const [backend, feature] = cell.dataset.pair.split(" ");
      const isPaid = cell.textContent !== "" && values.backends.includes(backend) && values.features.includes(feature);
      cell.classList.toggle("lm-paid", isPaid);
      cell.title = isPaid ? "part of the price" : "";
    }
    for (const input of this.fields.querySelectorAll("[data-option]")) {
      const value = String(values[input.dataset.option] ?? "");
      const isNew = input.dataset.known !== value;
      input.dataset.known = value;
      // A text that is not allowed stays for the user to correct, unless another page has changed the value.
      if (input.value !== value && (isNew ? !this.isBeingTyped(input, value) : input.validity.valid)) input.value = value;
    }
    this.capped.checked = values.budget !== null;
    this.lastBudget = values.budget ?? this.lastBudget;
    this.budget.hidden = values.budget === null;
    this.seed.hidden = values.sample === "order";
    this.described.hidden = !values.features.includes("descriptions");
    this.question.hidden = !has_question;
    this.input("prompt").parentElement.hidden = has_question;
    this.showValidity();
    this.lock(sends_frames);
  }

  isBeingTyped(input, value) {
    return input === document.activeElement && input.type === "number" && input.valueAsNumber === Number(value);
  }

  lock(sendsFrames) {
    const busy = this.connection.get("state") !== "idle";
    for (const input of this.element.querySelectorAll("input, select, textarea")) input.disabled = busy;
    for (const name of ["max_frames", "capture_interval"]) this.input(name).disabled = busy || sendsFrames;
  }
}

/** Return the price as elements, and whether the budget suffices. */
function priceElements(price, isValid) {
  if (!isValid) return [h("p", { class: "lm-note" }, "A value in the form is not allowed: correct it to see the price.")];
  if (price.error !== undefined) return [message(price.error.message, "error", price.error.hint)];
  if (!price.planned) {
    const each = price.charged === 0 ? "free" : `${plural(price.charged, "credit")} an image or frame`;
    return [h("p", { class: "lm-big" }, each),
      h("p", { class: "lm-note" }, "Plan to learn how many there are.")];
  }
  const { credits, rows, pictures } = price;
  const isFree = credits.high === 0 && price.charged === 0;
  return [
    h("p", { class: "lm-big" }, isFree ? "free " : `${rangeText(credits)} ${credits.high === 1 ? "credit" : "credits"} `,
      isFree ? null : trust(credits.label)),
    h("p", {}, isFree ? "Local models" : rangeText(credits, dollars), ` for ${rangeText(rows)} `, rows.high === 1 ? "row" : "rows",
      " to send, ", rangeText(pictures), " ", pictures.high === 1 ? "image or frame" : "images and frames", " ",
      trust(pictures.label)),
    budgetElement(price),
  ];
}

/** Return advice on the price as an element, closed at first; null without advice. */
function adviceElement({ advice }) {
  if (!advice?.length) return null;
  return h("details", {}, h("summary", {}, `${plural(advice.length, "thing")} worth knowing`),
    h("ul", {}, advice.map((sentence) => h("li", {}, sentence))));
}

/** Return the sentence on whether the budget suffices, and how many rows it pays for. */
function budgetElement({ budget, budget_status, affordable, rows }) {
  if (budget === null) return h("p", { class: "lm-note" }, "No budget: the upper end of the price is the cap.");
  const [mood, words] = BUDGET_WORDS[budget_status];
  const pays = budget_status === "clear" || affordable === null ? null
    : [` It pays for ${rangeText(affordable)} of ${rangeText(rows)} rows `, trust(affordable.label)];
  const line = message(`The budget of ${count(budget)} ${words}.`, mood);
  line.append(...(pays ?? []));
  return line;
}

/** Return the table of prices by feature, with the back ends below a feature that several have, and its explanation. */
function partsTable({ parts, millicredits, charged, pictures }) {
  if (!parts?.length) return null;
  const total = (price) => pictures === undefined || pictures.high === null ? "–"
    : rangeText({ low: pictures.low * price, high: pictures.high * price }, exactCredits);
  const row = (name, price, kind) => {
    const line = tableRow(name, exactCredits(price), total(price));
    if (kind) line.classList.add(kind);
    return line;
  };
  const rows = [...new Set(parts.map((part) => part.feature))].flatMap((feature) => {
    const backends = parts.filter((part) => part.feature === feature);
    if (backends.length === 1) return [row(`${feature}: ${backends[0].backend}`, backends[0].millicredits)];
    const sum = backends.reduce((before, part) => before + part.millicredits, 0);
    return [row(`${feature}: ${backends.length} back ends`, sum),
      ...backends.map((part) => row(part.backend, part.millicredits, "lm-part"))];
  });
  const rounding = charged * 1000 === millicredits ? null : h("p", { class: "lm-note" },
    "The service charges whole credits and rounds up: the sum if all images and frames are one request, ",
    `${plural(charged, "credit")} for each if every one is a request. The price lies between.`);
  return [dataTable("Price by feature and back end", ["part", "each", "all, in credits"],
    [...rows, row("Sum", millicredits, "lm-sum")]), rounding];
}

const OPTION_WORDS = {
  max_frames: (value) => (value === 0 ? "All frames of a video" : `${plural(value, "frame")} per video at most`),
  capture_interval: (value) => `A frame every ${plural(value, "second")}`,
  duplicates: (value) => `Duplicates ${value}: ${DUPLICATES[value]}`,
};

/** Return the table of what other options would cost; a click on one puts it into the form. */
function alternativesTable({ alternatives }, form) {
  if (!alternatives?.length) return null;
  const rows = alternatives.map(({ option, value, is_current, credits }) => {
    const words = OPTION_WORDS[option](value);
    const name = is_current ? h("strong", {}, words, h("span", { class: "lm-note" }, " (chosen)"))
      : h("button", { type: "button", class: "lm-link", "data-set": `${option} ${value}`,
        onclick: () => form.set(option, value) }, words);
    return tableRow(name, rangeText(credits), trust(credits.label));
  });
  return dataTable("What if", ["option", "credits", "kind of price"], rows);
}

/** Return the table of the rows that other budgets pay for; a click on one puts it into the form. */
function budgetsTable({ budgets }, form) {
  if (!budgets?.length) return null;
  const rows = budgets.map(({ budget, is_current: isCurrent, rows: paid, rows_to_pay: rowsToPay }) => {
    const words = `Budget ${count(budget)}`;
    const name = isCurrent ? h("strong", {}, words, h("span", { class: "lm-note" }, " (chosen)"))
      : h("button", { type: "button", class: "lm-link", "data-set": `budget ${budget}`,
        onclick: () => form.set("budget", budget) }, words);
    const share = { low: paid.low / rowsToPay, high: paid.high / rowsToPay };
    return tableRow(name, rangeText(paid), percent(share.low) === percent(share.high) ? percent(share.low)
      : rangeText(share, percent), trust(paid.label));
  });
  return dataTable("What if the budget changes", ["option", "rows paid", "share", "kind"], rows);
}

/** Return a command line with a button that copies it; null without a command. */
function commandElement(command) {
  if (!command) return null;
  const copy = h("button", { type: "button", class: "lm-button", onclick: () =>
    navigator.clipboard.writeText(command).then(() => { copy.textContent = "Copied"; }, () => {}) }, "Copy");
  return h("div", { class: "lm-command" }, h("code", {}, command), navigator.clipboard ? copy : null);
}

/** Return the chooser of a manifest column and the table of credits by its values. */
function columnTable({ values }, connection) {
  const rows = values?.map(({ value, rows: number, pictures, credits }) =>
    tableRow(value ?? "(no value)", count(number), rangeText(pictures), rangeText(credits), trust(credits.label)));
  return values?.length
    ? dataTable(`Price by ${connection.get("column")}`, ["value", "rows", "pictures", "credits", "kind of price"], rows) : null;
}

/** Return the price to accept as elements; the only button that spends is among them. */
function offerElements(offer, connection, spend) {
  if (offer.price === undefined) return [];
  const price = offer.free ? "free (local models)"
    : `${rangeText(offer.price)} ${offer.price.high === 1 ? "credit" : "credits"}`;
  if (!connection.get("may_spend")) {
    const where = offer.command ? "Run the plan with:" : "Run the plan in a notebook.";
    return [h("p", {}, `Price: ${price}.`), h("p", { class: "lm-note" }, `This page spends nothing. ${where}`),
      commandElement(offer.command)];
  }
  if (offer.credits === null) {
    return [message("The price has no upper end.", "error", "Set a budget, or a limit on frames, and plan again.")];
  }
  const balance = offer.balance === null ? "balance unknown" : `balance ${count(offer.balance)}`;
  const why = offer.budget === null ? "no budget is set, so its upper end is the cap" : `the budget is ${count(offer.budget)}`;
  const more = offer.continues ? " The run continues where it stopped." : "";
  const text = offer.free ? "Run for free" : `Spend up to ${creditsText(offer.credits)}; ${balance}`;
  const cap = offer.free ? "" : `; ${why}. No more than ${plural(offer.credits, "credit")} will be spent`;
  return [h("p", {}, `Price: ${price}${cap}.${more}`),
    offer.balance !== null && offer.balance < offer.credits
      ? message("The balance is smaller than that: the run stops when it is used up.") : null,
    h("button", { type: "button", class: "lm-button lm-spend",
      disabled: connection.get("state") !== "idle", onclick: () => spend({ max_credits: offer.credits }) }, text),
    offer.command ? h("p", { class: "lm-note" }, "The same on the command line:") : null, commandElement(offer.command)];
}

/** Return the rows of the plan by status, with reasons; its sentences only while the form has the plan's options. */
function planElements(facts, { is_planned: isPlanned, sentences = [] }, isOpen) {
  if (facts.rows === undefined) return [];
  const counts = facts.counts.map(({ status, words, rows }) => h("li", {}, statusMark(status), `${words}: ${count(rows)}`));
  const title = `${isPlanned ? "Plan" : "Last plan, with other options,"} of ${facts.name}: ${plural(facts.rows, "row")}`;
  return [h("details", { open: isOpen, class: !isPlanned && "lm-old" }, h("summary", { title: facts.manifest }, title),
    h("ul", { class: "lm-plain" }, counts, sentences.map((text) => h("li", {}, text))), reasonsTable(facts),
    facts.note ? h("p", { class: "lm-note" }, facts.note) : null)];
}

/** Return the dot in the color of a status; the words beside it name the status. */
function statusMark(status) {
  return h("i", { class: `lm-mark lm-status-${status}` });
}

/** Return the table of reasons why rows are not sent or have no answer. */
function reasonsTable({ reasons, more_reasons }) {
  if (!reasons?.length) return null;
  const rows = reasons.map((each) => tableRow(each.status, count(each.rows), h("span", {}, each.reason),
    h("span", {}, each.example)));
  const more = more_reasons ? h("p", { class: "lm-note" }, `… and ${plural(more_reasons, "more reason")}.`) : null;
  return [dataTable("Why", ["status", "rows", "reason", "for example"], rows), more];
}

/** Return the state of planning or of the run as elements. */
function progressElements(progress, chart) {
  if (progress.phase === undefined) return [];
  if (progress.phase === "planning" || progress.phase === "screening") {
    return [h("p", {}, `${progress.phase} · ${plural(progress.rows, "row")} read and checked`)];
  }
  const facts = [`${count(progress.finished)} of ${plural(progress.rows, "row")}`];
  if (chart.rate) facts.push(`${chart.rate.toFixed(1)} rows/s recently`);
  if (chart.eta_s && progress.phase === "running") facts.push(`${etaText(chart.eta_s)} left`);
  facts.push(`${count(progress.paid)} credits paid${progress.budget === null ? "" : ` of ${count(progress.budget)}`}`);
  facts.push(`${count(progress.held)} held`);
  const { answers, in_doubt } = progress;
  return [
    h("progress", { max: 1, value: progress.fraction, "aria-label": "Finished rows" }),
    h("p", {}, h("strong", {}, progress.phase), ` · ${facts.join(" · ")}`),
    in_doubt ? message(`${plural(in_doubt, "row")} in doubt: sent without an answer, so the charge is not known yet.`)
      : null,
    answers ? h("p", { class: "lm-note" }, `${plural(answers.requests, "answer")} to wait for; the service keeps the `,
      `first until ${new Date(answers.expires_at * 1000).toLocaleString()}.`) : null,
    progress.waiting ? h("p", { class: "lm-note" }, progress.waiting) : null,
    progress.notes.map((note) => h("p", { class: "lm-note" }, note)),
  ];
}

/** Return a range of durations: `3 min`, `3 to 5 min`. */
function etaText([low, high]) {
  const texts = [duration(low), duration(high)];
  return texts[0] === texts[1] ? `about ${texts[0]}` : `${texts[0]} to ${texts[1]}`;
}

/** Return how the last job ended as elements. */
function outcomeElements(outcome) {
  if (outcome.message === undefined) return [];
  const line = message(outcome.message, outcome.mood, outcome.hint);
  if (outcome.paid === undefined) return [line];
  const cap = outcome.budget === null ? "" : ` of a budget of ${count(outcome.budget)}`;
  const held = outcome.held ? `, ${count(outcome.held)} held for what is in doubt` : "";
  const balance = outcome.balance === null ? "" : `; balance ${count(outcome.balance)}`;
  const { remaining } = outcome;
  return [line,
    h("p", {}, `${plural(outcome.paid, "credit")} paid${cap}${held}; ${plural(outcome.requests, "request")} in `,
      `${duration(outcome.seconds)}${balance}.`),
    remaining ? h("p", {}, `${plural(remaining.rows, "row")} left: ${rangeText(remaining.credits)} credits `,
      `(${rangeText(remaining.credits, dollars)}) at the observed ${remaining.each.toFixed(2)} credits for a picture `,
      trust("estimate")) : null,
    h("p", {}, "Tables: ", h("code", {}, outcome.tables)), reasonsTable(outcome)];
}

function render({ model, el }) {
  const connection = connect(model);
  const act = (method, params) => connection.call(method, params).catch(() => {}); // the error line shows it
  let onValidity = () => {}; // until the page is complete
  const form = new PlannerForm(connection, () => onValidity());
  const part = (attributes = {}) => h("div", attributes);
  const offer = part({ class: "lm-offer" });
  const [chart, outcome, plan, parts, columnPart, advice] = Array.from({ length: 6 }, () => part());
  const progress = part({ role: "status" });
  const button = (text, method, params) =>
    h("button", { type: "button", class: "lm-button", onclick: () => act(method, params) }, text);
  const planButton = button("Plan", "make_plan");
  const againButton = button("Read the manifest again", "make_plan", { read_again: true });
  const stopButton = button("Stop", "stop");
  const state = h("span", { class: "lm-state", role: "status" });
  const consentBox = h("input", { type: "checkbox", id: `${form.id}-consent`,
    onchange: (event) => connection.set("consent", event.target.checked) });
  const risks = part();
  const consent = h("div", {}, risks,
    h("div", { class: "lm-check" }, consentBox, h("label", { for: consentBox.id }, "Run it anyway")));
  const column = h("select", { id: `${form.id}-column`,
    onchange: (event) => connection.set("column", event.target.value) });
  const columnField = h("div", { class: "lm-field" }, h("label", { for: column.id }, "Price by column"), column);
  const priceLive = part({ role: "status", class: "lm-price" });
  const root = h("div", { class: "lightmeter lm-planner" }, errorLine(connection), h("div", { class: "lm-columns" },
    h("section", { "aria-label": "Options" }, form.element),
    h("section", { "aria-label": "Price and run" }, h("h3", {}, "Price"), priceLive, consent,
      h("div", { class: "lm-buttons" }, planButton, againButton, stopButton, state), offer, progress, chart, outcome,
      plan, parts, columnField, columnPart, advice)));
  el.append(suppressHostShortcuts(root));
  connection.watch(["choices"], () => form.showChoices());
  connection.watch(["columns"], () => {
    form.showColumns();
    const names = connection.get("columns");
    columnField.hidden = !names.length;
    column.replaceChildren(h("option", { value: "" }, "none"), ...names.map((name) => h("option", { value: name }, name)));
    column.value = connection.get("column");
  });
  connection.watch(["form"], () => form.receive());
  connection.watch(["column"], () => { column.value = connection.get("column"); });
  let wasValid = true;
  onValidity = () => {
    if (form.isValid === wasValid) return;
    wasValid = form.isValid;
    showPrice();
    showPlan();
    showOffer();
    showState();
  };
  const shownPrice = () => (form.isValid ? connection.get("price") : {});
  const showPrice = () => {
    const price = shownPrice();
    const focused = parts.contains(document.activeElement) ? document.activeElement.dataset.set : undefined;
    priceLive.replaceChildren(...priceElements(price, form.isValid));
    parts.replaceChildren(...present([partsTable(price), alternativesTable(price, form), budgetsTable(price, form)]));
    columnPart.replaceChildren(...present([columnTable(price, connection)]));
    const isOpen = advice.querySelector("details")?.open;
    advice.replaceChildren(...present([adviceElement(price)]));
    if (isOpen && advice.firstElementChild) advice.firstElementChild.open = true;
    if (focused !== undefined) focusAlternative(parts, focused);
  };
  connection.watch(["price"], showPrice);
  // The button that spends goes away with the click: the focus moves on to Stop.
  const spend = (params) => act("spend", params).then(() => stopButton.focus());
  const showOffer = () =>
    offer.replaceChildren(...present(offerElements(form.isValid ? connection.get("offer") : {}, connection, spend)));
  connection.watch(["offer", "state"], showOffer);
  connection.watch(["progress", "chart"], () => {
    const points = connection.get("chart").points ?? [];
    const running = connection.get("progress").phase !== undefined || connection.get("outcome").paid !== undefined;
    progress.replaceChildren(...present(progressElements(connection.get("progress"), connection.get("chart"))));
    chart.replaceChildren(...(points.length > 1 && running ? [chartFigure(connection.get("chart"))] : []));
  });
  connection.watch(["outcome"], () => outcome.replaceChildren(...present(outcomeElements(connection.get("outcome")))));
  const showPlan = () => {
    const price = shownPrice();
    risks.replaceChildren(...(price.needs_consent ?? []).map((text) => message(text)));
    consent.hidden = !price.needs_consent?.length;
    consentBox.checked = connection.get("consent");
    const isOpen = plan.querySelector("details")?.open ?? connection.get("outcome").paid === undefined;
    plan.replaceChildren(...planElements(connection.get("plan_facts"), price, isOpen));
  };
  connection.watch(["plan_facts", "price", "consent"], showPlan);
  const showState = () => {
    const now = connection.get("state");
    state.textContent = PAGE_STATES[now];
    planButton.disabled = againButton.disabled = now !== "idle" || !form.isValid;
    againButton.hidden = connection.get("plan_facts").rows === undefined;
    stopButton.disabled = now === "idle" || now === "stopping";
  };
  connection.watch(["state"], () => {
    form.show();
    showState();
  });
  return () => {
    form.edges.disconnect();
    connection.close();
  };
}

/** Return the elements of a list of elements, nested lists and nulls. */
function present(elements) {
  return elements.flat(Infinity).filter((element) => element);
}

/** Return the chart with its legend. */
function chartFigure(chart) {
  return h("figure", { class: "lm-figure" }, burnDownChart(chart), h("figcaption", { class: "lm-note" },
    "Line: credits left. Below it: held for answers under way. Dashed: forecast of the end and of the credits left."));
}

/** Put the focus on an alternative of the table again; on its row's neighbour if it is the chosen one now. */
function focusAlternative(parts, wanted) {
  const [option] = wanted.split(" ");
  const found = [...parts.querySelectorAll("[data-set]")];
  (found.find((each) => each.dataset.set === wanted)
    ?? found.find((each) => each.dataset.set.startsWith(`${option} `)))?.focus();
}

export default { render };
