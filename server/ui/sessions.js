/**
 * sessions.js: the sessions of the daemon: a list, and what can be done with each.
 */

/** Makes the panel. */
export function start() {}
