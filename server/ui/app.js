/**
 * app.js: the start of the page: tabs.
 */
import { listen, set, settings } from "./address.js";
import { byId } from "./dom.js";

const tabs = ["attention", "sessions"];

function showTab() {
    for (const name of tabs) {
        const chosen = settings().tab === name;
        byId(name).hidden = !chosen;
        byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    }
}

for (const name of tabs) byId(`tab-${name}`).addEventListener("click", () => set({ tab: name }));
listen(showTab);
showTab();
