/* embed.h: a file of the build as constant bytes of the binary. */
#ifndef SRV_EMBED_H
#define SRV_EMBED_H

/* Defines begin_NAME[] and end_NAME[], between which the bytes stand.  `path` is a literal, as seen
 * from where the compiler runs; the Makefile says that the object depends on the file.  Hidden
 * symbols are addressed directly: arm64's linker has one entry of its table of addresses for both
 * where they are local. */
#define SRV_EMBED(name, path)                                               \
    __asm__(".pushsection .rodata\n"                                        \
            "begin_" #name ": .incbin \"" path "\"\n"                       \
            "end_" #name ": .byte 0\n"                                      \
            ".popsection\n");                                               \
    extern const char begin_##name[] __attribute__((visibility("hidden"))); \
    extern const char end_##name[] __attribute__((visibility("hidden")));

#endif
