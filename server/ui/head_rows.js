/**
 * head_rows.js: the exact rows of the open head, fetched as they are looked at.
 */
import { bytesIn } from "./client.js";
import { afterPause } from "./dom.js";
import { MOST_BYTES } from "./picture.js";
import { run } from "./status.js";

const CALL_MS = 100; // that a call for rows may take beside what is computed

/** Runs `work` for one call at a time; of the calls meanwhile the last one follows. */
function oneByOne(work) {
    let busy = false;
    let next = null;
    return async function call(...given) {
        next = given;
        while (next && !busy) {
            const latest = next;
            next = null;
            busy = true;
            await work(...latest).finally(() => (busy = false));
        }
    };
}

export class Rows {
    /** @param {object} panel the HeadPanel, whose picture takes the rows */
    constructor(panel) {
        this.panel = panel;
        this.before = 0; // the row that was pointed at last
        this.fetch = oneByOne((row) => this.#fetchRow(row));
        this.fetchAhead = oneByOne((row) => this.#fetchAhead(row));
        this.fetchDetail = afterPause(
            oneByOne(() => this.#fetchDetail()),
            200,
        );
    }

    /** Runs a picture's work; whether it is done, and the picture still the one that is shown. */
    async #ran(slot, label, work) {
        const { picture } = this.panel;
        const done = await run(slot, label, async (signal) => {
            await work(picture, signal);
            return true;
        });
        return done && this.panel.picture === picture;
    }

    async #fetchRow(row) {
        const { picture, map, told } = this.panel;
        if (!picture || row >= picture.rows) return;
        const asked = (shown, signal) => shown.fetchRow(row, signal, bytesIn(CALL_MS));
        if (!(await this.#ran("cell", `Row ${row}`, asked))) return;
        told.describe();
        map.draw();
        if (map.selected?.row === row) told.say();
    }

    /** Where the link is quick, fetches rows that the pointer will come to next. */
    async #fetchAhead(row) {
        const by = Math.sign(row - this.before) || 1;
        this.before = row;
        if (!this.panel.picture || bytesIn(CALL_MS) < MOST_BYTES) return;
        await this.#ran("ahead", "", (shown, signal) => shown.fetchAhead(row, by, signal));
    }

    /** Fetches the exact rows in view, once they are few enough. */
    async #fetchDetail() {
        const { picture, map, told } = this.panel;
        const wanted = picture && map.area && picture.wanted(map.area);
        if (picture && !wanted && picture.detail) map.refresh();
        if (!wanted) return;
        if (
            !(await this.#ran("detail", "Rows in view", (shown, signal) =>
                shown.fetchDetail(wanted, signal),
            ))
        )
            return;
        map.refresh();
        told.describe();
    }
}
