// The gallery of a run.

function render({ model, el }) {
  const connection = connect(model);
  const grid = h("div", { class: "lm-grid" });
  el.append(h("div", { class: "lightmeter" }, errorLine(connection), grid));
  const pictures = new Map();
  const showThumbnail = ({ item_id, src, reason }) =>
    pictures.get(item_id)?.replaceChildren(src === null ? reason : h("img", { src, alt: item_id }));
  connection.on("thumbnail", showThumbnail);
  connection.call("page", { number: 0 }).then(async ({ cards }) => {
    for (const card of cards) {
      const picture = h("div", { class: "lm-shot" });
      pictures.set(card.item_id, picture);
      grid.append(h("div", { class: "lm-card" }, picture, h("div", { class: "lm-name" }, card.name)));
    }
    const thumbnails = await connection.call("thumbnails", { item_ids: cards.map((card) => card.item_id) });
    for (const [item_id, thumbnail] of Object.entries(thumbnails)) showThumbnail({ item_id, ...thumbnail });
  }, () => {});
  return () => connection.close();
}

export default { render };
