/* cross.h: what a step of cross-attention costs over a session, and without one. */
#ifndef TESTS_BENCH_CROSS_H
#define TESTS_BENCH_CROSS_H

#include "attn.h"
#include "shapes.h"

/* Prints a table of steps of a layer of Whisper large's decoder over 1,500 encoder rows; false
 * where the two ways differ. */
bool bench_cross(struct attn_engine *engine, const struct bench_dtype *dtype);

#endif
