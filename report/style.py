"""The page's colours, light and dark, and its style sheet."""

from collections.abc import Mapping

# Variables of the style sheet; mark: behind what stands out, edge: beside it.
LIGHT = {
    "ink": "#1d1d1f", "soft": "#5c5c66", "line": "#dcdce2", "page": "#f6f6f8", "card": "#ffffff",
    "mark": "#fff4e8", "edge": "#d55e00", "link": "#0b62a8",
}  # fmt: skip
DARK = {
    "ink": "#e8e8ec", "soft": "#a8a8b2", "line": "#3a3a42", "page": "#17171a", "card": "#212126",
    "mark": "#3a2c1e", "edge": "#d55e00", "link": "#7cbcf0",
}  # fmt: skip
# What is written on what, by variable.
TEXT_ON = (
    ("ink", "page"), ("ink", "card"), ("ink", "mark"), ("soft", "page"), ("soft", "card"),
    ("soft", "mark"), ("link", "page"), ("link", "card"), ("link", "mark"),
)  # fmt: skip

# On the first screen 50.6rem hold the chosen layout and five beside it: 6.6 for the names of the
# figures, 6.4 for each of five (11 where a stack has two columns) and the rest for the chosen one.
_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: .6rem 1rem 3rem; max-width: 80rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; align-items: baseline;
  justify-content: space-between; margin: 0 0 .5rem; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; }
h1 small { color: var(--soft); font-weight: normal; font-size: .95rem; }
h2 { font-size: 1.15rem; margin: 0 0 .6rem; } h3 { font-size: 1rem; margin: 1.1rem 0 .5rem; }
nav { font-size: .85rem; } nav a { margin-left: .9rem; white-space: nowrap; }
nav a:first-child { margin-left: 0; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: .5rem; top: .5rem; padding: .4rem .8rem; background: var(--card); z-index: 1; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .9rem 1.1rem; margin: 0 0 1rem; }
p { margin: 0 0 .6rem; } .note, small { color: var(--soft); } .note { font-size: .88rem; }
a { color: var(--link); }
.verdict, .caveats { background: var(--mark); border-left: 4px solid var(--edge);
  padding: .5rem .8rem; border-radius: 4px; margin: 0 0 .7rem; overflow-wrap: anywhere; }
.verdict { font-weight: 600; }
.caveats p { margin: 0 0 .2rem; font-weight: 600; }
.caveats ul { margin: 0; padding-left: 1.1rem; } .caveats li { margin: .1rem 0; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 1.8rem; margin: 0 0 .8rem; }
dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; overflow-wrap: anywhere; }
.words { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; }
.words dt { color: var(--ink); font-weight: 600; font-size: inherit; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--soft); }
pre, code { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { overflow: auto; max-height: 28rem; padding: .6rem .8rem; margin: .4rem 0 .6rem;
  border: 1px solid var(--line); border-radius: 6px; background: var(--page); }
figure { margin: 0 0 1rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption { color: var(--soft); font-size: .88rem; margin-top: .25rem; }
.scroll { overflow-x: auto; margin: 0 0 .7rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-weight: normal; }
thead th { font-weight: 600; vertical-align: bottom; }
th small { display: block; font-weight: normal; min-height: 1.2em; }
.text { text-align: left; }
tr.searched th, tr.searched td { background: var(--mark); font-weight: 600; }
.files { margin: 0; padding-left: 1.2rem; columns: 2 22rem; font-size: .9rem;
  color: var(--soft); }
.columns { display: flex; gap: 3px; }
.stack { display: flex; flex-direction: column-reverse; justify-content: flex-start; flex: 1 1 0;
  gap: 1px; min-width: 0; margin: 0; padding: 0; list-style: none; }
.stack li { display: flex; gap: .4em; align-items: center; height: var(--block, 22px);
  padding: 0 .4em; border-radius: 3px; overflow: hidden; white-space: nowrap;
  box-shadow: inset 0 0 0 1px #80808066;
  font-size: min(13px, calc(var(--block, 22px) * .74)); line-height: 1; text-align: left; }
.stack .kind { flex: 1 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis;
  line-height: 1.25; }
.stack .slot { flex: none; min-width: 1.3em; }
.answer { display: grid; grid-template-columns: minmax(50.6rem, 1fr) minmax(15rem, 24rem);
  gap: 1.1rem; }
.first h2 { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.says { font-size: .88rem; line-height: 1.4; }
.says .saving { font-size: 1.12rem; font-weight: 600; line-height: 1.35; }
.says .verdict { font-weight: normal; }
.says h3 { margin: .5rem 0 .25rem; font-size: .95rem; }
.side { table-layout: fixed; font-size: .85rem; line-height: 1.3;
  min-width: calc(19.6rem + var(--beside) * 6.4rem); }
.side th, .side td { white-space: normal; overflow-wrap: anywhere; text-align: left;
  vertical-align: top; padding: .3rem .35rem; }
.side thead th { vertical-align: bottom; } .side tr > :first-child { padding-left: 0; }
.side .own { background: var(--mark); font-weight: 600; }
.side .own li { font-weight: 400; }
.side small { display: block; min-height: 0; font-weight: 400; }
.side td:not(.own) li { font-size: min(11.5px, calc(var(--block, 22px) * .74)); padding: 0 .3em; }
.side .heads { width: 6.6rem; } .side .beside { width: 6.4rem; } .tall .beside { width: 11rem; }
.says pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.pair { display: flex; flex-wrap: wrap; gap: .5rem 3rem; align-items: flex-start; }
.pair > * { min-width: 0; max-width: 100%; }
.beside-0 { --beside: 0; max-width: 28rem; } .beside-1 { --beside: 1; max-width: 36rem; }
.beside-2 { --beside: 2; max-width: 42rem; } .beside-3 { --beside: 3; }
.beside-4 { --beside: 4; } .beside-5 { --beside: 5; min-width: 50.6rem; }
.side.tall { max-width: none; min-width: calc(27.6rem + var(--beside) * 11rem); }
.side.even { width: auto; min-width: 0; }
.side .stacks > * { vertical-align: bottom; }
.layouts { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-end; margin: 0 0 .7rem; }
.layouts > div { flex: 0 0 9rem; min-width: 0; } .layouts .wide { flex-basis: 17rem; }
.layouts p { margin: .3rem 0 0; font-size: .85rem; overflow-wrap: anywhere; }
.steps svg { display: block; max-width: 100%; height: auto; }
.steps text { font: 12px system-ui, "Segoe UI", sans-serif; }
.steps text:not(.pi) { fill: var(--ink); }
.steps .likeliest { font-weight: 700; }
.steps > div:not([hidden]) { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: center;
  margin: 0 0 .4rem; }
.steps label { display: flex; gap: .8rem; flex: 0 1 34rem; }
.steps input { flex: 1 1 12rem; min-width: 8rem; accent-color: var(--link); }
.steps output { font-variant-numeric: tabular-nums; }
@media (prefers-reduced-motion: reduce) { .moving img { display: none; } }
@media (max-width: 72rem) {
  .answer { grid-template-columns: minmax(0, 1fr); } .says { order: -1; }
}
"""


def style_sheet(rules: str = "") -> str:
    """The whole sheet, with rules of one page behind those of all."""
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    light = f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}"
    return f"\n{light}\n{dark}{_RULES}{rules}"


def _variables(values: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())
