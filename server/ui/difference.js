/**
 * difference.js: numbers compared: two maps, two outputs, a score and the products it sums.
 *
 * The difference of two maps has the form of a Picture (picture.js); of maps of unequal size the
 * common part is taken, of pooled ones the pooled cells. Node can import the module.
 */
import { columnOf } from "./picture.js";

/** The difference of two pictures, first less second, in the form of a Picture. */
export class Difference {
    constructor(first, second) {
        this.first = first;
        this.second = second;
        this.kind = "scores";
        this.stage = "difference";
        this.rows = Math.min(first.rows, second.rows);
        this.keys = Math.min(first.keys, second.keys);
        const [most, keys] = [Math.min(first.columns, second.columns), this.keys];
        this.columns = first.keys === second.keys ? most : keys; // else appended ones are apart
        this.means = this.sinks = this.detail = null;
        const sizes = [first.map, second.map];
        const exact = first.whole && second.whole;
        const same = (name) => sizes[0][name] === sizes[1][name] && first[name] === second[name];
        /** Whether cells stand for the same pairs; pooled ones of unequal lengths do not. */
        this.comparable = exact || (same("rows") && same("columns"));
        const grid = exact ? this : this.comparable ? sizes[0] : { rows: 1, columns: 1 };
        const { rows, columns } = grid;
        const values = new Float32Array(rows * columns);
        this.largest = { value: 0, row: 0, column: 0 };
        for (let r = 0, i = 0; r < rows; r++)
            for (let c = 0; c < columns; c++, i++) {
                const [a, b] = sizes.map((map) => map.values[r * map.columns + c]);
                const blank = this.#isBlank(a === -Infinity, b === -Infinity);
                values[i] = blank || !this.comparable ? -Infinity : less(a, b);
                if (Math.abs(values[i]) > Math.abs(this.largest.value) && values[i] !== -Infinity)
                    this.largest = { value: values[i], row: r, column: c };
            }
        this.map = { values, rows, columns };
        this.whole = exact;
        this.hides = first.hides;
        this.masked = first.masked || second.masked;
    }

    /** A hidden weight is 0, a hidden score is no number. */
    #isBlank(first, second) {
        return this.first.kind === "scores" ? first || second : first && second;
    }

    rowLabel = (row) => this.first.rowLabel(row);
    columnLabel = (column) => this.first.columnLabel(column);

    isHidden(row, column) {
        const { first, second } = this;
        return this.#isBlank(first.isHidden(row, column), second.isHidden(row, column));
    }

    valueAt(row, column) {
        const a = this.first.valueAt(row, column);
        const b = this.second.valueAt(row, column);
        return a === undefined || b === undefined ? undefined : less(a, b);
    }

    rowValues(row) {
        if (this.first.rowValues(row) === undefined || this.second.rowValues(row) === undefined)
            return undefined;
        return Float32Array.from({ length: this.columns }, (_, c) => this.valueAt(row, c));
    }

    columnValues(column) {
        return columnOf(this.map, column / this.columns, this.rows);
    }
}

const finite = (value) => (value === -Infinity ? 0 : value);
const less = (a, b) => finite(a) - finite(b);

/** @returns {number} the Frobenius norm of after - before, over that of before */
export function relativeChange(before, after) {
    let difference = 0;
    let size = 0;
    for (let i = 0; i < before.length; i++) {
        difference += (after[i] - before[i]) ** 2;
        size += before[i] ** 2;
    }
    return size > 0 ? Math.sqrt(difference / size) : 0;
}

/**
 * The products of a query and a key.
 * @param {ArrayLike<number>} query @param {ArrayLike<number>} key
 * @returns {{products: Float32Array, sum: number}} sum: times scale
 */
export function productsOf(query, key, scale) {
    const products = Float32Array.from(query, (value, i) => value * key[i]);
    let sum = 0;
    for (let i = 0; i < query.length; i++) sum += query[i] * key[i];
    return { products, sum: sum * scale };
}
