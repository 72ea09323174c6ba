/* machine.c: facts about the machine and this process, from the operating system. */
#include "machine.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attn_limits.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void *bench_need(void *memory)
{
    if (memory == NULL)
        bench_die("out of memory");
    return memory;
}

unsigned bench_cpus(void) { return attn_usable_cpus(); }

/* The value, after colon and blanks, of the first line of a /proc file that begins with `field`; ""
 * where there is none. */
static void proc_field(char *out, size_t size, const char *path, const char *field)
{
    char line[512];
    FILE *file = fopen(path, "r");
    out[0] = '\0';
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *value = line + strlen(field);
        if (strncmp(line, field, strlen(field)) != 0)
            continue;
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (file != NULL)
        fclose(file);
}

void bench_machine_name(char *out, size_t size)
{
    static const char path[] = "/proc/cpuinfo";
    char name[128], family[16], model[16], stepping[16];
    proc_field(name, sizeof name, path, "model name");
    proc_field(family, sizeof family, path, "cpu family");
    proc_field(model, sizeof model, path, "model\t");
    proc_field(stepping, sizeof stepping, path, "stepping");
    snprintf(out, size, "%s (%s/%s/%s), %u CPUs, %.1f MiB L3", name, family, model, stepping,
             bench_cpus(), (double)bench_cache_bytes() / 1048576);
}

/* sysconf alone would not do: on some processors it counts all L3 caches, 384 MiB where a CPU
 * reaches 32. */
size_t bench_cache_bytes(void)
{
    char kib[32];
    proc_field(kib, sizeof kib, "/sys/devices/system/cpu/cpu0/cache/index3/size", "");
    long bytes = strtol(kib, NULL, 10) * 1024;
    if (bytes <= 0)
        bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : (size_t)8 << 20;
}

static double status_mib(const char *field)
{
    char value[64];
    proc_field(value, sizeof value, "/proc/self/status", field);
    return strtod(value, NULL) / 1024;
}

double bench_resident_mib(void) { return status_mib("VmRSS:"); }

double bench_peak_mib(void) { return status_mib("VmHWM:"); }

void bench_reset_peak(void)
{
    malloc_trim(0);
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file != NULL) {
        fputs("5", file);
        fclose(file);
    }
}
