/**
 * gestures.js: what pointers, the wheel and keys do to a map.
 *
 * The wheel zooms at the pointer, two fingers zoom between them, dragging moves what is shown, a
 * click selects. Keys do all of it without a pointer.
 */

const STEP = 1.4; // of a zoom by key or button

/** Each key: what it does to the map; the returned cell, where there is one, is selected. */
const KEYS = {
    ArrowUp: (map, { row, column }) => ({ row: row - 1, column }),
    ArrowDown: (map, { row, column }) => ({ row: row + 1, column }),
    ArrowLeft: (map, { row, column }) => ({ row, column: column - 1 }),
    ArrowRight: (map, { row, column }) => ({ row, column: column + 1 }),
    Home: (map, { row }) => ({ row, column: 0 }),
    End: (map, { row }) => ({ row, column: map.picture.columns - 1 }),
    PageUp: (map, { row, column }) => ({ row: row - screen(map), column }),
    PageDown: (map, { row, column }) => ({ row: row + screen(map), column }),
    "+": (map) => map.zoom(1 / STEP),
    "=": (map) => map.zoom(1 / STEP),
    "-": (map) => map.zoom(STEP),
    0: (map) => map.all(),
};

const SHIFTED = {
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
};

const screen = ({ area }) => Math.max(1, Math.floor(area.row1 - area.row0));

function onKey(map, event) {
    if (!map.picture || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && SHIFTED[event.key]) {
        const [across, down] = SHIFTED[event.key];
        map.pan((across * map.plot.width) / 8, (down * map.plot.height) / 8);
    } else if (Object.hasOwn(KEYS, event.key)) {
        const begin = { row: Math.floor(map.area.row0), column: Math.floor(map.area.column0) };
        const moves = KEYS[event.key].length > 1;
        const cell = KEYS[event.key](map, map.selected ?? begin);
        if (moves) map.select(map.selected ? cell : begin, { reveal: true });
    } else return;
    event.preventDefault();
}

function pointOf(map, event) {
    const box = map.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** Makes `map` (heatmap.js) follow pointers, wheel and keys. */
export function follow(map) {
    const { canvas } = map;
    const fingers = new Map(); // pointer -> its last point
    let moved = 0;

    canvas.addEventListener("keydown", (event) => onKey(map, event));
    canvas.addEventListener(
        "wheel",
        (event) => {
            if (!map.picture || (event.deltaY > 0 && !map.zoomed)) return; // the page scrolls
            event.preventDefault();
            const lines = event.deltaMode === 1 ? 16 : 1;
            const by = Math.max(-240, Math.min(240, event.deltaY * lines));
            map.zoom(Math.exp(by / 400), pointOf(map, event));
        },
        { passive: false },
    );
    canvas.addEventListener("dblclick", (event) => map.zoom(1 / 2, pointOf(map, event)));
    canvas.addEventListener("pointerdown", (event) => {
        if (!map.picture || event.button !== 0) return;
        if (fingers.size === 0) moved = 0;
        fingers.set(event.pointerId, pointOf(map, event));
        canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
        if (!map.picture) return;
        const point = pointOf(map, event);
        const before = fingers.get(event.pointerId);
        if (!before) {
            map.hover(map.cellAt(point.x, point.y));
            return;
        }
        const others = [...fingers].filter(([id]) => id !== event.pointerId);
        moved += Math.abs(point.x - before.x) + Math.abs(point.y - before.y);
        fingers.set(event.pointerId, point);
        if (others.length === 1) pinch(map, others[0][1], before, point);
        else if (others.length === 0 && moved > 4 && map.zoomed)
            map.pan(before.x - point.x, before.y - point.y);
    });
    canvas.addEventListener("pointerup", (event) => {
        const point = fingers.get(event.pointerId);
        const alone = fingers.size === 1;
        fingers.delete(event.pointerId);
        const cell = point && map.cellAt(point.x, point.y);
        if (alone && moved <= 4 && cell) map.select(cell);
    });
    canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => map.picture && map.hover(null));
}

/** One finger went from `before` to `point` while another stayed at `still`. */
function pinch(map, still, before, point) {
    const distance = (a, b) => Math.max(8, Math.hypot(a.x - b.x, a.y - b.y));
    const middle = { x: (still.x + point.x) / 2, y: (still.y + point.y) / 2 };
    map.pan((before.x - point.x) / 2, (before.y - point.y) / 2);
    map.zoom(distance(still, before) / distance(still, point), middle);
}
