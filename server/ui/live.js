/**
 * live.js: the load of the daemon, by its metrics.
 */

/** Makes the panel. */
export function start() {}
