// What a browser does for the console by itself: the theme that was chosen, Ctrl-K, the reader's time zone, and going
// from page to page over the open connection (penstock/console/router.py is the other half).
(() => {
  const key = "penstock-theme";
  const applyTheme = () => {
    const chosen = localStorage.getItem(key);
    if (window.Quasar) window.Quasar.Dark.set(chosen === "dark" ? true : chosen === "light" ? false : "auto");
  };
  window.penstockConsole = {
    zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
    nextTheme: () => {
      const order = ["auto", "light", "dark"];
      const next = order[(order.indexOf(localStorage.getItem(key) || "auto") + 1) % order.length];
      localStorage.setItem(key, next);
      applyTheme();
      return next;
    },
    theme: () => localStorage.getItem(key) || "auto",
    copy: (text) => navigator.clipboard && navigator.clipboard.writeText(text),
    logOut: (base) => {
      const form = document.createElement("form");
      form.method = "post";
      form.action = base + "/logout";
      document.body.append(form);
      form.submit();
    },
  };
  // --- from page to page

  history.scrollRestoration = "manual";
  const here = () => location.pathname + location.search;
  let shown = here();
  let scroll = 0;
  let watcher = null;
  const visit = (top) => {
    shown = here();
    scroll = top;
    document.querySelector(".q-drawer__backdrop:not(.hidden)")?.click(); // on a phone the navigation covers the page
    emitEvent("console_visit", shown);
  };
  Object.assign(window.penstockConsole, {
    go: (address) => {
      if (!window.socket?.connected) return location.assign(address);
      history.replaceState({ ...history.state, scroll: window.scrollY }, "");
      if (new URL(address, location.href).href !== location.href) history.pushState({}, "", address);
      visit(0);
    },
    // The page is there, or will be: its heading takes the focus, so that screen readers tell where one is.
    arrived: (number) => {
      watcher?.disconnect();
      const until = performance.now() + 3000;
      let heading = null;
      const look = () => {
        const found = document.querySelector(`[data-visit="${number}"] h1`);
        const isLost = document.activeElement === document.body || document.activeElement === null;
        if (found && found !== heading && (heading === null || isLost)) {
          found.tabIndex = -1;
          found.focus({ preventScroll: true });
          if (heading === null) window.scrollTo(0, 0);
        }
        heading = found || heading;
        if (heading && scroll > 0 && window.scrollY < scroll && performance.now() < until) window.scrollTo(0, scroll);
      };
      watcher = new MutationObserver(look);
      watcher.observe(document.getElementById("pk-main"), { childList: true, subtree: true });
      look();
    },
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[href]");
    if (!link || (link.target && link.target !== "_self") || link.hasAttribute("download")) return;
    const address = new URL(link.href, location.href);
    if (address.origin !== location.origin || !address.pathname.startsWith(`${window.path_prefix || ""}/c/`)) return;
    if (address.hash || !window.socket?.connected) return;
    event.preventDefault();
    window.penstockConsole.go(address.pathname + address.search);
  });
  window.addEventListener("popstate", (event) => {
    if (here() === shown) return; // a jump within the page, as the link that skips the navigation does
    if (!window.socket?.connected) return location.reload();
    visit(event.state?.scroll || 0);
  });

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
    const wanted = ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") || (event.key === "/" && !typing);
    if (!wanted) return;
    event.preventDefault();
    document.getElementById("pk-search")?.click();
  });
  // A table that is wider than the screen can be scrolled with the keyboard, too.
  const reachable = () => document.querySelectorAll(".q-table__middle:not([tabindex])").forEach((box) => (box.tabIndex = 0));
  window.addEventListener("load", () => new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true }));
  window.addEventListener("load", () => setTimeout(applyTheme, 0));
})();
