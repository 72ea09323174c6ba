/**
 * head.js: its panel of the page.
 */

/** Makes the panel. */
export function start() {}
