/**
 * head_parts.js: what stands around the map of one head: controls, the other views, export.
 */
import { importance, showBefore, showChange } from "./ablation.js";
import { CompareView } from "./compare.js";
import { layerControls, pictureControls } from "./controls.js";
import { exportBar } from "./export.js";
import { LinesView } from "./lines.js";
import { NeuronView } from "./neurons.js";

/** Controls and export of `panel`, the HeadPanel; they follow what it shows by `show`, `fresh` and
 *  `compute`. */
export class Parts {
    constructor(panel) {
        this.panel = panel;
        this.importance = importance(() => panel.what);
        this.layer = layerControls(this.importance);
        this.controls = pictureControls(
            {
                zoom: (factor) => panel.picture && panel.map.zoom(factor),
                all: () => panel.picture && panel.map.all(),
            },
            this.layer.modified,
        );
        this.export = exportBar(panel);
    }

    /** Shows what the settings and `what`, which the panel shows, leave to choose; null: nothing. */
    show(what) {
        const isLocal = what?.source.local ?? false;
        this.controls.views.hidden = what === null;
        this.controls.show(isLocal);
        this.export.show(isLocal);
        this.layer.element.hidden = isLocal;
        if (isLocal || !what) this.layer.modified.hidden = true;
        else this.layer.show(what.source.spec(what.layer), what.source.keys, what.head);
    }

    /** Another layer, or one that is changed otherwise, is shown where `isFresh`. */
    fresh(source, isFresh) {
        if (isFresh) this.importance.clear();
        this.importance.button.disabled = source.lacks?.includes("ablation") ?? false;
    }

    /** Computes what changes by what is changed. */
    compute(what) {
        showChange(this.layer.change, what.source, what.layer, what.fields);
        showBefore(this.layer.before, what);
    }
}

/** The views beside the map, by name. */
export function viewsOf(host, panel) {
    return {
        lines: new LinesView(host, panel),
        neurons: new NeuronView(host, panel),
        compare: new CompareView(host, panel),
    };
}
