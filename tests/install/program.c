/* program.c: the least that a program can do with libattn. */
#include <attn.h>
int main(void) { return attn_engine_open(&(struct attn_engine *){0}, NULL, NULL); }
