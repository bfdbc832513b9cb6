"""The web console: see and steer a cluster in the browser. This page tells how it is built and how a page is added.

    access/    who gets in: users, logins, the guard before every request (host, origin, cookie, CSRF, CSP), audit log
    policy     which role sees which topics and fields
    cluster    one cluster: a thread looks at it every few seconds (`snapshot`), figures over time (`history`)
    data/      the data service: functions that take a `Viewer` first and return plain data; masking lives here
    rest/      /api/v1, one router for each part, on the data service
    page       `Page` and `Here`, what a page is and what it is handed
    pages/     one module a page; pages/__init__.py lists them
    widgets/   tables, tiles, charts, dialogs, states: they ask nobody, they show what they are given
    theme      colours and type as CSS variables, light and dark; static/console.css uses them
    frame      navigation, search, banner; nicegui_setup is the one place that knows NiceGUI's inside
    server     wiring and uvicorn

A page is added in four steps:

1. `data/`: a function `def things(viewer: Viewer, …) -> …`. Look with `viewer.session` (the cluster as this user may
   reach it) or, for what lists and charts show, with `viewer.snapshot` (the last look, costs the broker nothing).
   Names of topics go through `viewer.topic(name)` or `viewer.sees(name)`. A change stands inside
   `with viewer.change(role, action, target) as session:`, which checks the role and writes the audit log.
2. `rest/`: a route that calls it; bodies are models of `rest/models.py`.
3. `pages/things.py`: `async def build(here: Here)` and `PAGE = Page("/things", "Things", build, label="Things",
   icon="…")`; `await here.viewer.ask(things, …)` asks in a thread, `here.every(5, refresh)` keeps it fresh,
   `here.link("/topics/x")` makes addresses. Every page has one `title_row`, which is its `<h1>`. What goes wrong for
   the user (`UserError`) may simply be raised: the frame shows it; around actions use `dialogs.attempt`.
4. `pages/__init__.py` lists it, `tests/console` drives it: the fixture `page` is a browser that is logged in, and fails
   when a request leaves the console or the browser complains.

Hostile names and values: pass them as text (`pieces.text`, `ui.label`, cells of tables) or as
`element.props["aria-label"] = …`, never inside a string given to `.props(…)`, `ui.html` or a slot template.
"""
