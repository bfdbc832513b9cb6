// What a browser does for the console by itself: the theme that was chosen, Ctrl-K, and the reader's time zone.
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
