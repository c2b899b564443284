"""How the page looks: by light, by dark, on paper and on a phone.

Colours are named once for each light; charts use the same names. Text stands out from its ground by 4.5 to 1 or more
(WCAG 2.2, AA), and no meaning is carried by colour alone.
"""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

_LIGHT: Final = """
--ground:#fbfaf8;--ink:#1e1c19;--soft:#6a655c;--line:#e3dfd7;--faint:#f2efe9;--accent:#2d5f86;--pale:#cfdbe5;
--amber:#b46a12;--red:#b3372f;--ok:#3f8a63;--skipped:#a8a297;--duplicate:#6f9cc3;--over:#8566a8;--pending:#ddd8ce;
"""

_DARK: Final = """
--ground:#171614;--ink:#ece8e0;--soft:#a8a194;--line:#38352f;--faint:#211f1c;--accent:#7fb2dc;--pale:#30475a;
--amber:#e0a04a;--red:#e2786f;--ok:#66b48b;--skipped:#7d776c;--duplicate:#4f7ba1;--over:#a98ccb;--pending:#4a463f;
"""

STYLE: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    """
:root{--serif:"Iowan Old Style","Palatino Linotype",Palatino,"URW Palladio L",Georgia,"DejaVu Serif",serif;
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans","DejaVu Sans",sans-serif}
*{box-sizing:border-box}
html{background:var(--ground);-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;color:var(--ink);font:15px/1.5 var(--sans);-webkit-print-color-adjust:exact;print-color-adjust:exact}
.page{max-width:1120px;margin:0 auto;padding:56px 32px 48px}
h1,h2,h3,p,dl,dd,figure{margin:0}
h1{font:600 40px/1.12 var(--serif);letter-spacing:-.012em;overflow-wrap:anywhere}
h2{font:600 23px/1.2 var(--serif);letter-spacing:-.005em}
h3{font-size:15px;font-weight:600}
a{color:inherit;text-decoration-color:var(--line);text-underline-offset:3px}
a:hover{text-decoration-color:currentColor}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:2px}
code{font:13px/1.4 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;background:var(--faint);
padding:1px 5px;border-radius:3px}
.eyebrow{color:var(--accent);font-size:13px;font-weight:600;letter-spacing:.04em;margin-bottom:10px}
.verdict{font:400 21px/1.4 var(--serif);margin-top:12px;max-width:38em}
.fine{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.top>.fine{margin-top:8px}
.of{font-variant-numeric:tabular-nums;color:var(--soft)}
.none{color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));margin-top:36px;border-top:2px solid var(--ink)}
.tiles>div{padding:14px 16px 0 0}
.tiles>div+div{padding-left:18px;border-left:1px solid var(--line)}
.tiles dt{font-size:13px;color:var(--soft)}
.tiles dd{font:400 32px/1.25 var(--serif);font-variant-numeric:lining-nums}
.tiles dd.fine{font:13px/1.5 var(--sans)}
.tiles.small{grid-template-columns:repeat(3,minmax(0,1fr));margin:8px 0 28px;border-top:1px solid var(--line)}
.tiles.small dd{font-size:22px}
nav{display:flex;flex-wrap:wrap;gap:4px 20px;margin:36px 0 0;padding:12px 0;border-top:1px solid var(--line);
border-bottom:1px solid var(--line);font-size:14px}
nav a{text-decoration:none;color:var(--soft)}
nav a:hover{color:var(--ink)}
section{display:grid;grid-template-columns:200px minmax(0,1fr);gap:0 48px;padding:44px 0 52px;scroll-margin-top:8px}
section+section{border-top:1px solid var(--line)}
section>header p{color:var(--soft);font-size:13.5px;line-height:1.45;margin-top:8px}
.body>*+*{margin-top:24px}
.body>h3{margin-top:32px}
.remark{color:var(--soft);font-size:14px;max-width:44em;overflow-wrap:anywhere}
.remark.warn{margin-top:24px;padding:10px 14px;border-left:3px solid var(--amber);background:var(--faint);
color:var(--ink)}
.rows{display:flex;height:28px;border-radius:4px;overflow:hidden;gap:1px}
.rows>i{min-width:3px;flex-basis:0}
.dot{display:inline-block;width:10px;height:10px;border-radius:50%;margin-right:8px;
box-shadow:inset 0 0 0 1px color-mix(in srgb,var(--ink) 14%,transparent)}
.s-ok{background:var(--ok)}.s-failed{background:var(--red)}.s-skipped{background:var(--skipped)}
.s-duplicate{background:var(--duplicate)}.s-in_doubt{background:var(--amber)}.s-over_budget{background:var(--over)}
.s-pending{background:var(--pending)}
table{border-collapse:collapse;width:100%;font-size:14px;line-height:1.45}
caption{text-align:left;font-size:15px;font-weight:600;padding:0 0 8px}
.body>table+table{margin-top:36px}
th{text-align:left;font-weight:400;font-size:13px;color:var(--soft);padding:0 28px 6px 0;vertical-align:bottom;
border-bottom:1px solid var(--line)}
td{padding:7px 28px 7px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th:last-child,td:last-child{padding-right:0}
tbody tr:last-child td{border-bottom:0}
td:first-child{min-width:6.5em}
thead:has(th:first-child:empty):has(th:last-child:empty):not(:has(th:nth-child(3))){display:none}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.meter{display:inline-block;vertical-align:middle;width:72px;height:6px;border-radius:3px;background:var(--line);
margin-right:10px;overflow:hidden}
.meter>i{display:block;height:100%;background:var(--accent)}
.meter.bad>i{background:var(--red)}
.chart svg{display:block;width:100%;height:auto;overflow:visible}
.chart svg *{stroke-linejoin:round;stroke-linecap:butt}
.chart text{font-family:var(--sans)}
.chart .wide{max-width:820px}
.chart .narrow{display:none;max-width:420px}
details>summary{cursor:pointer;color:var(--soft);font-size:14px}
details[open]>summary{margin-bottom:12px}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(164px,1fr));gap:28px 20px}
.card{min-width:0}
.shot{position:relative;aspect-ratio:4/3;border-radius:4px;overflow:hidden;background:var(--faint);display:block}
.shot img{display:block;width:100%;height:100%;object-fit:cover;object-position:50% 30%}
.shot.none{display:flex;flex-direction:column;align-items:center;justify-content:center;gap:8px;padding:12px;
text-align:center;box-shadow:inset 0 0 0 1px var(--line)}
.shot.none .dot{width:18px;height:18px;margin:0 2px}
.badge{position:absolute;left:8px;bottom:8px;padding:2px 8px;border-radius:3px;font-size:12px;line-height:1.5;
color:#fff;background:rgb(0 0 0/.66)}
.shot.veil>summary{list-style:none;display:block;height:100%;margin:0}
.shot.veil>summary:focus-visible{outline-offset:-3px}
.shot.veil>summary::-webkit-details-marker{display:none}
.shot.veil>summary img{filter:blur(8px);transform:scale(1.15)}
.shot.veil[open]>summary{position:absolute;inset:0;z-index:1}
.shot.veil[open]>summary>*{opacity:0}
.shot.veil[open]>img{position:absolute;inset:0}
.card figcaption{padding-top:8px}
.name{font-weight:600;font-size:14px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.name a{text-decoration:none}
.tags{display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;overflow:hidden}
.strip{display:flex;height:8px;border-radius:2px;overflow:hidden;margin-top:8px;
outline:1px solid color-mix(in srgb,var(--ink) 12%,transparent);outline-offset:-1px}
.strip>i{flex-basis:0;min-width:2px}
.rated{font-size:13px;margin-top:6px;display:flex;align-items:center;gap:8px}.rated .meter{flex:1;margin:0}
.palette .strip{height:32px;border-radius:4px}
.palette .strip.named{height:88px;align-items:stretch}
.palette .strip.named>i{display:flex;align-items:flex-end;justify-content:center;overflow:hidden}
.palette .strip b{font:400 11px/1 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;writing-mode:vertical-rl;
transform:rotate(180deg);padding:8px 0;white-space:nowrap}
.palette h3 .fine{font-weight:400}
footer{border-top:1px solid var(--line);padding-top:16px;color:var(--soft);font-size:13px}
@media (max-width:860px){
section{display:block;padding:36px 0 40px}
section>header{margin-bottom:22px}
}
@media (max-width:620px){
.page{padding:32px 18px}
h1{font-size:30px}.verdict{font-size:18px}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
.tiles>div:nth-child(odd){padding-left:0;border-left:0}
.tiles>div:nth-child(n+3){margin-top:14px}
.tiles dd{font-size:26px}
.tiles.small dd{font-size:18px}
.tiles.small>div:nth-child(n){margin-top:0;padding-left:10px}
.tiles.small>div:first-child{padding-left:0}
.tiles.small>div+div{border-left:1px solid var(--line)}
.gallery{grid-template-columns:repeat(2,minmax(0,1fr));gap:22px 14px}
.chart .wide{display:none}.chart .narrow{display:block}
table,tbody,tr,td,caption{display:block}
thead{display:none}
tr{padding:8px 0;border-bottom:1px solid var(--line)}
tbody tr:last-child{border-bottom:0}
td,.number{display:inline-flex;gap:6px;align-items:baseline;padding:1px 16px 1px 0;border:0;text-align:left;
white-space:normal}
td[data-label]::before{content:attr(data-label);color:var(--soft);font-size:13px;flex:none}
td:first-child{display:block;font-weight:600;padding:0}
td:first-child::before{display:none}
td:not([data-label]):not(:first-child){display:block;color:var(--soft);padding:0}
td .fine{font-weight:400}
}
@page{margin:14mm}
@media print{
html{background:#fff}
body{font-size:10.5pt}
.page{max-width:none;padding:0}
nav,details:not(.veil){display:none}
section{display:block;padding:18px 0 22px;break-inside:auto}
section>header{margin-bottom:14px;break-after:avoid}
figure,tr,.palette,.rows,.tiles{break-inside:avoid}
caption,h2,h3{break-after:avoid}
.gallery{grid-template-columns:repeat(5,minmax(0,1fr));gap:16px 12px}
.shot.veil .badge{display:none}
a{text-decoration:none}
}
"""
)
