"""The page that shows the screen in a browser.

It loads files only from its own server.
"""

from __future__ import annotations

# textual.js sets styles from code. It also calls `new Function` once, and works without
# it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src ws://{host}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

PAGE = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>atomic</title>
    <link rel="stylesheet" href="/static/css/xterm.css">
    <script src="/static/js/textual.js"></script>
    <script src="/focus.js"></script>
    <style>
      @font-face {
        font-family: "Roboto Mono";
        src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf");
      }
      body { background: #11141a; color: #d7dae0; font-family: "Roboto Mono", monospace; margin: 0; }
      .textual-terminal { position: absolute; inset: 0; opacity: 0; }
      body.-first-byte .textual-terminal { opacity: 1; }
      .note { position: absolute; inset: 0; display: flex; align-items: center; justify-content: center; }
      body.-first-byte .starting { display: none; }
      .over { display: none; background: #11141a; z-index: 10; }
      body.-closed .over { display: flex; }
      a { color: #8ab4f8; }
    </style>
  </head>
  <body>
    <div class="note starting">Starting …</div>
    <div class="note over"><p>The screen has ended. <a href="/">Start again</a> if the server still runs.</p></div>
    <div id="terminal" class="textual-terminal"
      data-session-websocket-url="ws://{host}/ws" data-font-size="{size}"></div>
  </body>
</html>
"""

FOCUS = """// Give the terminal the keyboard as soon as it shows something.
new MutationObserver((_, observer) => {
  const input = document.querySelector(".xterm-helper-textarea");
  if (input && document.body.classList.contains("-first-byte")) {
    input.focus();
    observer.disconnect();
  }
}).observe(document.documentElement, {subtree: true, childList: true, attributeFilter: ["class"]});
"""
