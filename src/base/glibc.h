/* glibc.h: before all else where -Dportable=true: of each function that glibc
 * has had a new version of since 2.28 (and that the engine calls) the first
 * one, which any later glibc has, too. What is new in them is where they lie
 * (one library since 2.34), and how errors of mathematics are told. */
#ifndef BASE_GLIBC_H
#define BASE_GLIBC_H

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#else
#error "-Dportable: what was the first version of glibc for this processor?"
#endif

#define BASE_OLD(name) __asm__(".symver " #name "," #name "@" FIRST)
BASE_OLD(dlclose);
BASE_OLD(dlopen);
BASE_OLD(dlsym);
BASE_OLD(exp);
BASE_OLD(exp2);
BASE_OLD(hypot);
BASE_OLD(log);
BASE_OLD(log2);
BASE_OLD(pow);
BASE_OLD(pthread_create);
BASE_OLD(pthread_join);
BASE_OLD(pthread_once);
#undef BASE_OLD
#undef FIRST

#endif
