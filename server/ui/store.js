/**
 * store.js: the state of the page, in one place: all that changes while the page is looked at.
 *
 * Each module keeps its part under its own name and has no variable outside of it. What others
 * follow (settings, the source, the models) is told here. Elements are not state, nor is a cache
 * of what can be computed again.
 */

/** Parts by name. */
export const store = {};
const listeners = new Map(); // part -> Set of functions

/**
 * Makes a part of the state.
 * @template T
 * @param {string} name
 * @param {T} initial
 * @returns {T} the part, whose members the module that made it changes
 */
export function part(name, initial) {
    if (name in store) throw new Error(`two parts ${name}`);
    listeners.set(name, new Set());
    store[name] = initial;
    return initial;
}

/** Says that a part has changed: calls what watches it with `news`. */
export function tell(name, ...news) {
    for (const listener of [...listeners.get(name)]) listener(...news);
}

/** Calls the listener with all news of a part. @returns {() => void} ends that */
export function watch(name, listener) {
    const all = listeners.get(name);
    all.add(listener);
    return () => all.delete(listener);
}
