/* half.h: IEEE half precision by arithmetic, sharing no code with the library. */
#ifndef TESTS_HALF_H
#define TESTS_HALF_H

#include <stdint.h>

/* Returns the value of a half's 16 bits, by arithmetic on exponent and fraction. */
double half_value(uint16_t bits);

#endif
