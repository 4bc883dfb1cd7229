/* air_start.c: with -Dportable=true, what starts the command. The C library's
 * own start files ask for a version of this function that glibc has had since
 * 2.34 only; its first version needs to be told what runs constructors, which
 * start files of before brought along. */
#include <stddef.h>

typedef void hook(int argc, char **argv, char **env);

extern hook *const __init_array_start[] __attribute__((visibility("hidden")));
extern hook *const __init_array_end[] __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(".symver first_start,__libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver first_start,__libc_start_main@GLIBC_2.17");
#endif

int first_start(int (*main)(int, char **, char **), int argc, char **argv,
                hook *init, void (*fini)(void), void (*end)(void), void *stack);
int __wrap___libc_start_main(int (*main)(int, char **, char **), int argc,
                             char **argv, hook *init, void (*fini)(void),
                             void (*end)(void), void *stack);

static void
construct(int argc, char **argv, char **env)
{
    for (hook *const *f = __init_array_start; f < __init_array_end; f++)
        (*f)(argc, argv, env);
}

int
__wrap___libc_start_main(int (*main)(int, char **, char **), int argc,
                         char **argv, hook *init, void (*fini)(void),
                         void (*end)(void), void *stack)
{
    return first_start(main, argc, argv, init != NULL ? init : construct, fini,
                       end, stack);
}
