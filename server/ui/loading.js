/**
 * loading.js: says which file of the page did not arrive, or not whole.
 *
 * The page is made by modules: where one of them is missing, none runs.  So this script is none: it
 * stands before all others, asks for nothing, and is silent once app.js has begun.
 */
"use strict";
{
    const missing = new Set();
    const hasBegun = () => document.getElementById("header-tools")?.hasChildNodes();

    const say = () => {
        const [first] = missing;
        const more = missing.size > 1 ? ` and ${missing.size - 1} more` : "";
        const box = document.createElement("p");
        box.className = "error";
        box.dataset.testid = "not-loaded";
        box.textContent =
            `${first}${more} did not arrive whole, and the page needs it. Reload the page. ` +
            "If that does not help: does attnd run, has a login ended, does a proxy pass on ui/?";
        document.getElementById("errors").replaceChildren(box);
        document.getElementById("starting").hidden = true;
    };

    const watch = ({ target, filename }) => {
        const url = target === window ? filename : (target.src ?? target.href);
        if (!url || target.tagName === "IMG" || hasBegun()) return;
        if (missing.size === 0) addEventListener("load", say, { once: true });
        missing.add(new URL(url).pathname.split("/ui/").pop());
        if (missing.size > 1) missing.delete("app.js"); // for want of the other
        if (document.readyState === "complete") say();
    };
    addEventListener("error", watch, true);
}
