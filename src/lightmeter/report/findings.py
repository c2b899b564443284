"""The sections of the page about what was found: pictures, tags, colours, moderation, back ends."""

from __future__ import annotations

from lightmeter.html_fragments import data_uri, format_duration, format_percent
from lightmeter.report.charts import severity_chart, tag_chart
from lightmeter.report.markup import bar, esc, link_html, palette_strip, swatch, table
from lightmeter.report.model import REVIEW_FROM, Agreement, GroupPalette, ReportData, ReportItem
from lightmeter.report.sections import Section, chart_html

__all__ = ["backend_section", "color_section", "moderation_section", "picture_section", "tag_section"]


def picture_section(facts: ReportData) -> Section:
    """A sample of the items that are ok."""
    body = "".join(_card(item) for item in facts.sample)
    answered = facts.summary.counts["ok"]
    lead = (
        f"All {answered:,} that were answered."
        if len(facts.sample) == answered
        else f"{len(facts.sample):,} of {answered:,}, drawn from all over the manifest."
    )
    lead += " Pictures rated as likely unsafe are blurred until they are opened."
    return Section("pictures", "Pictures", lead, f'<div class="gallery">{body}</div>' if body else "")


def tag_section(facts: ReportData) -> Section:
    """The most frequent tags."""
    tags = facts.found.tags
    if not tags:
        return Section("tags", "Tags", "", "")
    rows = [(tag.name, tag.items, tag.sources, None if tag.mean_score is None else bar(tag.mean_score)) for tag in tags]
    figures = table(("tag", "items", "back ends", "mean score"), rows)
    body = (
        f"{chart_html(tag_chart(tags, facts.summary.rows))}<details><summary>The figures</summary>{figures}</details>"
    )
    return Section("tags", "Tags", "Items that have each tag; a tag counts once for each item, whoever says it.", body)


def color_section(facts: ReportData) -> Section:
    """Palettes of all items and of each group, sorted as the eye does."""
    body = "".join(
        _palette(palette, facts.found.group_column, first=not at) for at, palette in enumerate(facts.found.palettes)
    )
    lead = "Main colours by their share of the pixels: greys first, then by hue, dark to light."
    return Section("colours", "Colours", lead, body)


def moderation_section(facts: ReportData) -> Section:
    """How severities are spread, and what a person should look at."""
    severities = facts.found.severities
    if not severities.rated:
        return Section("moderation", "Moderation", "", "")
    body = chart_html(severity_chart(severities))
    if facts.review:
        cards = "".join(_card(item) for item in facts.review)
        shown = "" if len(facts.review) == severities.to_review else f", the worst {len(facts.review):,}"
        body += f"<h3>To review: {severities.to_review:,}{shown}</h3>"
        body += f'<div class="gallery review">{cards}</div>'
    else:
        body += f'<p class="remark">Nothing is rated {REVIEW_FROM} or higher.</p>'
    rows = [
        (label, source, items, None if mean is None else bar(mean), None if highest is None else bar(highest))
        for label, source, items, mean, highest in severities.voices
    ]
    body += table(("label", "back end", "items", "mean severity", "highest"), rows, caption="By label")
    lead = "Each item by the highest severity of any back end and frame; likelihoods are on the same scale."
    return Section("moderation", "Moderation", lead, body)


def backend_section(facts: ReportData) -> Section:
    """Who says something of how many items, and how far they agree."""
    voices = facts.found.voices
    said = sorted({what for voice in voices for what in voice.items})
    rows = [(voice.source, *(voice.items.get(what) for what in said)) for voice in voices]
    body = table(("back end", *said), rows) if rows else ""
    body += "".join(_agreement(agreement) for agreement in facts.found.agreements)
    return Section(
        "backends", "Back ends", "Items of which each back end says something, and how far they agree.", body
    )


def _agreement(found: Agreement) -> str:
    rows = [(name, both, either - both, bar(both / either if either else 0)) for name, both, either in found.labels]
    title = (
        f"{found.one} and {found.other} say the same in {format_percent(found.both, found.either)} "
        f"of the {found.either:,} times that either names a tag"
    )
    return table(("tag", "both", "one alone", "agreement"), rows, caption=title)


def _palette(palette: GroupPalette, by: str, *, first: bool) -> str:
    name = "all items" if first else "none" if palette.group == "None" else palette.group
    kind = "" if first else f'<span class="fine">{esc(by)}</span> '
    return f'<div class="palette"><h3>{kind}{esc(name)}</h3>{palette_strip(palette.colors, named=first)}</div>'


def _card(item: ReportItem) -> str:
    tags = ", ".join(f"{esc(name)}{_percent(score)}" for name, score in item.tags)
    said = ""
    if item.said is not None:
        label, source, spread = item.said
        apart = f", back ends {spread:.2f} apart" if spread else ""
        said = f'<div class="fine">{esc(label or "unnamed")} by {esc(source or "unnamed")}{esc(apart)}</div>'
    rated = (
        ""
        if item.severity is None
        else f'<div class="rated"><span class="fine">NSFW</span> {bar(item.severity, _mood(item))}</div>'
    )
    name = link_html(item.url, item.name)
    return (
        f'<figure class="card">{_shot(item)}<figcaption><div class="name" title="{esc(item.url)}">{name}</div>'
        f'<div class="fine tags">{tags or "no tags"}</div>{palette_strip(item.colors)}'
        f"{rated}{said}</figcaption></figure>"
    )


def _mood(item: ReportItem) -> str:
    return "bad" if item.blurred else ""


def _percent(score: float | None) -> str:
    return "" if score is None else f' <span class="of">{score:.2f}</span>'


def _shot(item: ReportItem) -> str:
    """The picture; what is likely unsafe behind its veil; where there is none, the colours it is known to have."""
    picture = item.picture
    length = "" if item.duration_s is None else f" {format_duration(item.duration_s)}"
    badge = f'<span class="badge">video{length}</span>' if item.kind == "video" else ""
    if picture.jpeg is None or picture.veil is None:
        dots = "".join(swatch(color) for color, _ in item.colors)
        return f'<div class="shot none"><span>{dots}</span><span class="fine">{esc(picture.reason)}</span>{badge}</div>'
    alt = esc(item.name)
    if not item.blurred:
        return f'<div class="shot"><img src="{data_uri(picture.jpeg)}" alt="{alt}">{badge}</div>'
    veil = f'<img src="{data_uri(picture.veil)}" alt="{alt}, blurred"><span class="badge">show</span>'
    opened = f'<img src="{data_uri(picture.jpeg)}" alt="{alt}">'
    return f'<details class="shot veil"><summary>{veil}</summary>{opened}</details>'
