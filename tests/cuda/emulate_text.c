/* emulate_text.c: CUDA C as C++: asm statements, shared memory of a launch. */
#include <ctype.h>
#include <string.h>

#include "emulate.h"

static bool
is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *
skip_space(const char *at)
{
    return at + strspn(at, " \t\n");
}

/* ---- asm("template" : outputs : inputs : clobbers) ---- */

enum { TEMPLATE = 512, NAME = 128 };

/* Behind the literal at `at`, whose text is added to out[room]. */
static const char *
take_literal(const char *at, char *out, size_t room)
{
    size_t n = strlen(out);
    for (at++; *at != '"' && *at != '\0'; at++) {
        at += *at == '\\' && at[1] != '\0';
        if (n + 1 < room)
            out[n++] = at[-1] == '\\' && *at == 'n' ? ' ' : *at;
    }
    out[n] = '\0';
    return *at == '"' ? at + 1 : at;
}

/* Behind what stands in parentheses at `at`. */
static const char *
skip_parentheses(const char *at)
{
    int depth = 0;
    do {
        depth += *at == '(';
        depth -= *at == ')';
    } while (*at++ != '\0' && depth > 0);
    return at;
}

/* "cvt.rn.f16.f32" -> ptx_cvt_rn_f16_f32; declarations come before it, a
 * special register behind it: "mov.u32 %0, %%cluster_ctarank" ->
 * ptx_mov_u32_cluster_ctarank. */
static void
put_name(const char *template, base_text *out)
{
    const char *declared = *template == '{' ? strchr(template, ';') : NULL;
    const char *at = skip_space(declared ? declared + 1 : template);
    const char *special = strstr(at, "%%");
    char name[NAME] = "ptx_";
    size_t n = strlen(name);
    for (; *at != '\0' && *at != ' ' && *at != ';' && n + 1 < NAME; at++)
        name[n++] = is_word(*at) ? *at : '_';
    if (special)
        name[n++] = '_';
    for (at = special ? special + 2 : ""; is_word(*at) && n + 1 < NAME; at++)
        name[n++] = *at;
    base_text_put(out, name, n);
}

/* Constraints with their operands; clobbers have none. */
static const char *
put_operands(const char *at, base_text *out)
{
    const char *separator = "";
    for (at = skip_space(at); *at != ')' && *at != '\0'; at = skip_space(at)) {
        char constraint[16] = "";
        if (*at != '"') {
            at++;
            continue;
        }
        at = skip_space(take_literal(at, constraint, sizeof constraint));
        if (*at != '(')
            continue;
        const char *end = skip_parentheses(at);
        base_text_add(out, "%s%.*s", separator, (int)(end - at), at);
        separator = ", ";
        at = end;
    }
    return at;
}

/* At "asm" that is a word; the semicolon stays. */
static const char *
put_asm(const char *at, base_text *out)
{
    char template[TEMPLATE] = "";
    at = strchr(at, '(') + 1;
    for (at = skip_space(at); *at == '"'; at = skip_space(at))
        at = take_literal(at, template, sizeof template);
    put_name(template, out);
    base_text_put(out, "(", 1);
    return put_operands(at, out);
}

/* ---- extern __shared__ __align__(16) float room[]; ---- */

static const char *
put_shared(const char *at, base_text *out)
{
    const char *end = strchr(at, ';');
    const char *type = skip_space(strstr(at, "__shared__") + 10);
    if (strncmp(type, "__align__", 9) == 0)
        type = skip_space(skip_parentheses(type + 9));
    const char *name = strchr(type, '[');
    const char *past = name;
    while (is_word(name[-1]))
        name--;
    base_text_add(out, "%.*s*const %.*s = (%.*s*)emu_dynamic()",
                  (int)(name - type), type, (int)(past - name), name,
                  (int)(name - type), type);
    return end;
}

static bool
is_at(const char *at, const char *start, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && !is_word(at[n]) &&
           (at == start || !is_word(at[-1]));
}

void
emulate_translate(const char *text, base_text *out)
{
    const char *from = text, *at = text;
    while (*at != '\0') {
        const bool is_asm = is_at(at, text, "asm");
        const bool is_shared =
            is_at(at, text, "extern") && is_at(at + 7, text, "__shared__");
        if (!is_asm && !is_shared) {
            at++;
            continue;
        }
        base_text_put(out, from, (size_t)(at - from));
        from = at = is_asm ? put_asm(at, out) : put_shared(at, out);
    }
    base_text_put(out, from, strlen(from));
}
