/* planted.h: defects of framing, planted between client and attnd, that the suite has to find. */
#ifndef TESTS_FRAMING_PLANTED_H
#define TESTS_FRAMING_PLANTED_H

#include <stddef.h>

#define PLANTED_COUNT 6

const char *planted_name(size_t defect);

/* Starts a relay with that defect on a port of its own, which is returned; planted_close ends it
 * when its connections have ended. */
unsigned planted_open(size_t defect, unsigned attnd_port);
void planted_close(void);

#endif
