// The part of the review that compares the back ends: how often they agree, and what dropping one would save and lose.

/** Return a section that compares the back ends when it is opened; `thresholds` in Python are those of the queue. */
function agreementSection(connection) {
  const result = h("div", { "aria-live": "polite" });
  const compare = () => {
    result.replaceChildren(h("p", { class: "lm-note" }, "Comparing…"));
    connection.call("compare").catch(() => result.replaceChildren());
  };
  const again = h("button", { class: "lm-button", type: "button", onclick: compare }, "Compare again");
  const section = h("details", { class: "lm-agreement" },
    h("summary", {}, "Which back end can be dropped?"), result, again);
  section.addEventListener("toggle", () => { if (section.open && !result.firstChild) compare(); });
  connection.on("agreement", (found) => result.replaceChildren(...(found === null ? [] : agreementTables(found))));
  return section;
}

function agreementTables({ pairs, losses, unknown_credits }) {
  if (!losses.length) return [h("p", {}, "No back end of this run gave answers that can be compared.")];
  const notes = [
    unknown_credits === null ? null : `What dropping a back end saves is unknown: ${unknown_credits}.`,
    pairs.length ? null : "No two back ends answered the same feature: there is nothing to compare.",
  ];
  return [
    ...notes.filter((note) => note !== null).map((note) => h("p", { class: "lm-note" }, note)),
    lossTable(losses),
    pairs.length ? pairTable(pairs) : "",
  ];
}

/** Return the table of losses; columns with credits that are unknown for all rows are left out. */
function lossTable(losses) {
  const isListed = losses.some((loss) => loss.list_price_credits !== null);
  const isSaved = losses.some((loss) => loss.saved_credits_low !== null);
  const columns = [
    ["Without", (loss) => loss.backend],
    ["Feature", (loss) => loss.feature],
    isSaved && ["Credits saved", savedText],
    ["Answers lost", (loss) => loss.lost_answers.toLocaleString("en-US")],
    ["Of its answers", (loss) => loss.answers.toLocaleString("en-US")],
    ["Items left without any", (loss) => loss.lost_items.toLocaleString("en-US")],
    isSaved && ["Credits saved per lost answer", perAnswerText],
    isListed && ["List price before rounding", listPriceText],
  ].filter((column) => column);
  const caption = "What dropping a back end saves and loses" + (isSaved ? "; most credits for each lost answer first" : "");
  const note = "Credits saved: how much lower the charges would be without this row. Rows do not add up, because the service rounds up.";
  return h("div", {}, agreementTable(caption, columns.map(([head]) => head),
    losses.map((loss) => columns.map(([, text]) => text(loss))), 2), isSaved ? h("p", { class: "lm-note" }, note) : "");
}

function pairTable(pairs) {
  const rows = pairs.map((pair) => [
    pair.feature, pair.one, pair.other, pair.items.toLocaleString("en-US"), percent(pair.agreement),
    pair.kappa === null ? "–" : pair.kappa.toFixed(2), pair.given_by_both.toLocaleString("en-US"),
    pair.only_one.toLocaleString("en-US"), pair.only_other.toLocaleString("en-US"),
  ]);
  const heads = ["Feature", "First", "Second", "Items", "Agreement", "Kappa", "Given by both", "Only first", "Only second"];
  const note = "Agreement is the mean Jaccard overlap of the answers about an item; for NSFW and faces, the share of "
    + "items with the same answer, and Cohen's kappa: 1 is full agreement, 0 that of chance.";
  return h("div", {}, agreementTable("How often back ends agree", heads, rows, 3), h("p", { class: "lm-note" }, note));
}

/** Return a table whose columns from `numbers` on are numbers. */
function agreementTable(caption, heads, rows, numbers) {
  const cells = (tag, texts) =>
    h("tr", {}, texts.map((text, column) =>
      h(tag, { class: column >= numbers ? "lm-number" : null, scope: tag === "th" ? "col" : null }, text)));
  return h("div", { class: "lm-scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "lm-table" }, h("caption", {}, caption), h("thead", {}, cells("th", heads)),
      h("tbody", {}, rows.map((row) => cells("td", row)))));
}

function listPriceText({ list_price_credits }) {
  return list_price_credits === null ? "no price" : list_price_credits.toLocaleString("en-US", { maximumFractionDigits: 2 });
}

function savedText({ saved_credits_low, saved_credits_high }) {
  if (saved_credits_low === null) return "no price";
  const [low, high] = [saved_credits_low, saved_credits_high].map((credits) => credits.toLocaleString("en-US"));
  return low === high ? low : `${low} to ${high}`;
}

function perAnswerText({ saved_credits_low, lost_answers, saved_credits_per_lost_answer }) {
  if (saved_credits_low === null) return "no price";
  if (!lost_answers) return "loses nothing";
  return saved_credits_per_lost_answer.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}
