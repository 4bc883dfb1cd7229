/* scan.h: reading the text form: characters, words, literals, positions. */
#ifndef IR_SCAN_H
#define IR_SCAN_H

#include "ir/print.h"

typedef struct {
    const char *text, *p, *end;
    ir_graph *g;
    base_arena scratch;
    bool may_declare; /* unknown symbols are made, not refused */
} scanner;

typedef struct {
    const char *s;
    size_t len;
} word;

/* SYNTAX, "line:column: ...". */
air_status scan_fail(const scanner *s, const char *at, const char *what);
air_status scan_fail_word(const scanner *s, word w, const char *what);
/* The failure that just happened, with the position in front. */
air_status scan_locate(const scanner *s, const char *at, air_status status);

/* Spaces, newlines and comments. */
void scan_space(scanner *s);
/* Blanks up to the end of the line; the comment there, if any. */
bool scan_comment(scanner *s, word *out);
bool scan_peek(scanner *s, const char *token);
bool scan_take(scanner *s, const char *token);
air_status scan_expect(scanner *s, const char *token);
/* Letters, digits, _ . : $; empty where there is none. */
word scan_word(scanner *s);
bool scan_keyword(scanner *s, const char *keyword);
bool word_is(word w, const char *text);
air_status scan_int(scanner *s, int64_t *out);
/* A literal that is a float, not an integer: 1.0 1e5 inf nan. */
bool scan_at_float(scanner *s);
air_status scan_float(scanner *s, double *out);
air_status scan_str(scanner *s, const char **out);
/* %name of a known value. */
air_status scan_ref(scanner *s, air_ref *out);
/* A size expression. */
air_status scan_dim(scanner *s, air_dim *out);
/* [a, b, ...] in the scratch arena. */
air_status scan_dims(scanner *s, size_t *count, air_dim **out);
air_status scan_type(scanner *s, air_type *out);
/* A NUL-terminated copy in the scratch arena. */
air_status scan_copy(scanner *s, word w, const char **out);

#endif
