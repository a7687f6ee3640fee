// Two tabs, as assistive technology knows them: arrows move between them, and one is in the Tab order.

/** Let the tabs of a list show their panels; `onShow` is called with the id of a panel. */
export function connectTabs(onShow) {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const choose = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
    onShow(chosen.getAttribute("aria-controls"));
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = tabs.at((i + step) % tabs.length);
      next.focus();
      choose(next);
    });
  });
}
