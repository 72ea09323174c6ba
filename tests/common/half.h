/* half.h: IEEE half precision, by arithmetic: shares no code with the library. */
#ifndef TESTS_HALF_H
#define TESTS_HALF_H

#include <stdint.h>

/* What the 16 bits of a half stand for, by arithmetic on exponent and fraction. */
double half_value(uint16_t bits);

#endif
