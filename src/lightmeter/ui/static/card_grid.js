// A grid of cards that scrolls virtually: only the cards in view are in the DOM, whatever the number of items.

const CARD_WIDTH = 165;
const CARD_HEIGHT = 262;
const CARD_GAP = 10;
const CHUNK = 60; // cards of one request
const MAX_CHUNKS = 40; // chunks in memory
const MAX_CANVAS_PX = 8_000_000; // browsers limit the height of an element to about 33 million px

/**
 * Create the grid. `options` has the functions `loadCards(offset, limit)` (a promise of cards), `drawCard(card, index)`,
 * `open(index)`, `select(index, event)` and `similar(index)`.
 */
function cardGrid(options) {
  const canvas = h("div", { class: "lm-canvas", role: "list", "aria-label": "Items" });
  const scroller = h("div", { class: "lm-scroller", onscroll: () => scrolled(), onkeydown: (event) => pressed(event) }, canvas);
  const drawn = new Map(); // index → element
  const chunks = new Map(); // number → array of cards, or null while they are loaded
  let [items, version, columns, width, top, lastScroll, active] = [0, 0, 1, 0, 0, 0, 0];

  const rowPx = CARD_HEIGHT + CARD_GAP;
  const rows = () => Math.ceil(items / columns);
  const totalPx = () => rows() * rowPx + CARD_GAP;
  const canvasPx = () => Math.min(totalPx(), MAX_CANVAS_PX);
  const viewPx = () => scroller.clientHeight;
  const maxTop = () => Math.max(0, totalPx() - viewPx());
  const maxScroll = () => Math.max(0, canvasPx() - viewPx());

  // The canvas of a large grid is lower than its rows: a short scroll moves by as many pixels, a long one by proportion.
  function scrolled() {
    const step = scroller.scrollTop - lastScroll;
    lastScroll = scroller.scrollTop;
    if (step === 0) return;
    const isEnd = lastScroll <= 0 || lastScroll >= maxScroll() - 1;
    const isLong = Math.abs(step) > 2 * viewPx() || isEnd;
    top = isLong ? (lastScroll / Math.max(1, maxScroll())) * maxTop() : Math.min(maxTop(), Math.max(0, top + step));
    draw();
    alignScrollbar();
  }

  // If the user has scrolled again, the scroll event of that is still to come, and calls this once more.
  const alignScrollbar = debounce(() => scroller.scrollTop === lastScroll && moveScrollbar(), 200);

  function moveScrollbar() {
    scroller.scrollTop = maxTop() ? (top / maxTop()) * maxScroll() : 0;
    lastScroll = scroller.scrollTop;
    draw();
  }

  function scrollTo(newTop) {
    top = Math.min(maxTop(), Math.max(0, newTop));
    moveScrollbar();
  }

  /** Return the first and the last index in view, with one row more on each side. */
  function inView() {
    const first = Math.max(0, Math.floor(top / rowPx) - 1) * columns;
    const last = Math.min(items, (Math.ceil((top + viewPx()) / rowPx) + 1) * columns) - 1;
    return [first, last];
  }

  function draw() {
    const [first, last] = inView();
    for (const [index, element] of drawn) {
      if (index < first || index > last) {
        if (element.contains(element.getRootNode().activeElement)) scroller.focus({ preventScroll: true });
        element.remove();
        drawn.delete(index);
      }
    }
    for (let index = first; index <= last; index++) place(index);
    load();
  }

  function place(index) {
    const card = cardAt(index);
    let element = drawn.get(index);
    if (element === undefined || (element.dataset.item === undefined && card)) {
      const made = h("div", {
        class: "lm-card", role: "listitem", "aria-posinset": index + 1, "aria-setsize": items, "data-index": index,
        "data-item": card?.item_id,
      }, card ? options.drawCard(card, index) : h("div", { class: "lm-shot", "aria-busy": "true" }));
      if (element === undefined) canvas.append(made);
      else element.replaceWith(made);
      drawn.set(index, (element = made));
      setTabStop(element, index === active);
    }
    const column = index % columns;
    const y = Math.floor(index / columns) * rowPx + CARD_GAP - top + lastScroll;
    element.style.cssText = `transform: translate(${column * (width + CARD_GAP)}px, ${y}px); width: ${width}px; height: ${CARD_HEIGHT}px`;
  }

  function cardAt(index) {
    return chunks.get(Math.floor(index / CHUNK))?.[index % CHUNK];
  }

  const load = debounce(() => {
    const [first, last] = inView();
    for (let number = Math.floor(first / CHUNK); number * CHUNK <= last; number++) loadChunk(number);
  }, 30);

  async function loadChunk(number) {
    if (chunks.has(number)) return;
    const asked = version;
    chunks.set(number, null);
    for (const old of [...chunks.keys()].slice(0, Math.max(0, chunks.size - MAX_CHUNKS))) chunks.delete(old);
    const cards = await options.loadCards(number * CHUNK, CHUNK).catch(() => null);
    if (asked !== version) return;
    if (cards === null) {
      chunks.delete(number);
      return;
    }
    chunks.set(number, cards);
    draw();
  }

  function layOut() {
    const inner = scroller.clientWidth - 2;
    const first = Math.floor(top / rowPx) * columns;
    columns = Math.max(1, Math.floor((inner + CARD_GAP) / (CARD_WIDTH + CARD_GAP)));
    width = (inner - (columns - 1) * CARD_GAP) / columns;
    canvas.style.height = `${canvasPx()}px`;
    scrollTo(Math.floor(first / columns) * rowPx);
  }

  function setTabStop(element, isStop) {
    const button = element.querySelector("button");
    for (const control of element.querySelectorAll("button, input")) control.tabIndex = -1;
    if (button) button.tabIndex = isStop ? 0 : -1;
  }

  function moveTo(index) {
    const previous = drawn.get(active);
    active = Math.max(0, Math.min(items - 1, index));
    if (previous) setTabStop(previous, false);
    const y = Math.floor(active / columns) * rowPx;
    if (y < top) scrollTo(y);
    else if (y + rowPx + CARD_GAP > top + viewPx()) scrollTo(y + rowPx + CARD_GAP - viewPx());
    const element = drawn.get(active);
    if (element) setTabStop(element, true);
    element?.querySelector("button")?.focus({ preventScroll: true });
  }

  function pressed(event) {
    const page = Math.max(1, Math.floor(viewPx() / rowPx)) * columns;
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page,
      Home: -items, End: items,
    };
    if (event.key in steps && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const from = active;
      moveTo(active + steps[event.key]);
      if (event.shiftKey) options.select(active, { shiftKey: true, from });
    } else if (event.key === " ") options.select(active, event);
    else if (event.key === "s" && !event.ctrlKey && !event.metaKey) options.similar(active);
    else return;
    event.preventDefault();
  }

  scroller.addEventListener("focusin", ({ target }) => {
    const index = Number(target.closest(".lm-card")?.dataset.index ?? active);
    if (index === active) return;
    const previous = drawn.get(active);
    if (previous) setTabStop(previous, false);
    active = index;
    setTabStop(drawn.get(active), true);
  });
  const observer = new ResizeObserver(() => layOut());
  observer.observe(scroller);

  return {
    element: scroller,
    cardAt,
    /** Show other items, from the first one on. */
    reset(newItems) {
      items = newItems;
      version += 1;
      [top, active] = [0, 0];
      chunks.clear();
      for (const element of drawn.values()) element.remove();
      drawn.clear();
      canvas.style.height = `${canvasPx()}px`;
      scrollTo(0);
    },
    /** Return the elements of the cards in the DOM, as pairs of index and element. */
    drawn: () => [...drawn],
    moveTo,
    /** Return the card at an index; load it if needed. */
    async fetchCard(index) {
      if (index < 0 || index >= items) return null;
      await loadChunk(Math.floor(index / CHUNK));
      return cardAt(index) ?? null;
    },
    close: () => observer.disconnect(),
  };
}
