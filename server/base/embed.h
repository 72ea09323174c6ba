/* embed.h: a file of the build as constant bytes of the binary. */
#ifndef SRV_EMBED_H
#define SRV_EMBED_H

/* Defines begin_NAME[] and end_NAME[], between which the bytes stand.  `path` is a literal, as seen
 * from where the compiler runs; the Makefile says that the object depends on the file. */
#define SRV_EMBED(name, path)                         \
    __asm__(".pushsection .rodata\n"                  \
            "begin_" #name ": .incbin \"" path "\"\n" \
            "end_" #name ": .byte 0\n"                \
            ".popsection\n");                         \
    extern const char begin_##name[], end_##name[];

#endif
