/* SPDX-License-Identifier: MIT */
/* Configuration: one table for the fields of weft_config and for the environment.
 *
 * A row names a variable and, for most, the field it stands for. A new setting is a new row (and a line in docs/guide/embedding.md:
 * a test compares the two). Rules:
 *  1. A field that the program sets wins; the environment fills in those that are zero. Flags of both count.
 *  2. A value is taken whole or not at all: a wrong one, in a field or in a variable, refuses the start. A variable is also checked
 *     where a field wins over it: somebody meant something by it.
 *  3. A variable that begins with WEFT_ and is not in the table is most likely a mistyped one, and is named once.
 * In a program that runs with more rights than its user the environment is not read at all. */
#include "task/config.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "sched/sched.h"

typedef enum {
    NUMBER,   /* 12 */
    SIZE,     /* 65536, 64k, 2M, 1G */
    DURATION, /* 500 (nanoseconds), 20us, 1ms, 2s, off (negative) */
    FLAG,     /* 0 or 1: a bit of weft_config.flags */
    WORD,     /* one of the words in `means`; read where it is used */
} kind;

typedef struct {
    const char *variable;
    const char *field; /* NULL: there is only the variable */
    kind kind;
    size_t offset; /* of the field */
    int64_t most;  /* of NUMBER, SIZE; of DURATION: 0 = it may be off */
    unsigned flag; /* FLAG: which */
    const char *means;
} setting;

#define FIELD(name) #name, .offset = offsetof(weft_config, name)

static const setting settings[] = {
    {"WEFT_WORKERS", FIELD(workers), .kind = NUMBER, .most = WEFT_SLOTS_MAX, .means = "1 to 1024, or 0 for the CPUs there are"},
    {"WEFT_STACK_SIZE", FIELD(stack_size), .kind = SIZE, .most = WEFT_STACK_MAX,
     .means = "a number of bytes up to 1G (k, M and G may follow it), or 0 for 256k"},
    {"WEFT_MAX_THREADS", FIELD(max_threads), .kind = NUMBER, .most = INT_MAX, .means = "a positive number, or 0 for 10000"},
    {"WEFT_SEARCH", FIELD(search), .kind = DURATION,
     .means = "a duration such as 50us (ns, us, ms, s; nanoseconds without), 0 for 20us, or off"},
    {"WEFT_SLICE", FIELD(slice), .kind = DURATION, .most = INT64_MAX,
     .means = "a duration such as 5ms (ns, us, ms, s; nanoseconds without), or 0 for 10ms"},
    {"WEFT_BOUND_THREADS_MAX", FIELD(bound_threads_max), .kind = NUMBER, .most = INT_MAX,
     .means = "a positive number, or 0 for 1000"},
    {"WEFT_BLOCK_THREADS_MAX", FIELD(block_threads_max), .kind = NUMBER, .most = INT_MAX,
     .means = "a positive number, or 0 for 512"},
    {"WEFT_BLOCK_IDLE", FIELD(block_idle), .kind = DURATION, .most = WEFT_SLICE_MOST,
     .means = "a duration such as 5s (ns, us, ms, s; nanoseconds without), or 0 for 60s"},
    {"WEFT_PANIC_ABORT", NULL, .kind = FLAG, .flag = WEFT_PANIC_ABORT, .means = "0 or 1"},
    {"WEFT_PIN_WORKERS", NULL, .kind = FLAG, .flag = WEFT_PIN_WORKERS, .means = "0 or 1"},
    {"WEFT_LOCK_CHECK", NULL, .kind = FLAG, .flag = WEFT_LOCK_CHECK, .means = "0 or 1"},
    {"WEFT_STACK_SLAB", NULL, .kind = NUMBER, .most = 4096, .means = "a number of MiB up to 4096"},
    {"WEFT_STACK_MEASURE", NULL, .kind = FLAG, .flag = WEFT_STACK_MEASURE, .means = "0 or 1"},
    {"WEFT_STACK_REPORT", NULL, .kind = FLAG, .flag = WEFT_STACK_REPORT, .means = "0 or 1"},
    {"WEFT_STACK_ADVISED", NULL, .kind = FLAG, .flag = WEFT_STACK_ADVISED, .means = "0 or 1"},
    {"WEFT_STACK_GUARDS", NULL, .kind = WORD, .means = "region, protect or canary"},
    {"WEFT_NO_MEMBARRIER", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_TSAN_INSIDE", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_PROCESS_MADVISE", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_EVENTFD", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_EPOLL_PWAIT2", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_NOWAIT", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_IO_URING", NULL, .kind = WORD, .means = "0 or 1"},
    {"WEFT_NO_SCHED_SETATTR", NULL, .kind = WORD, .means = "0 or 1"},
};

/* ---- text to numbers ---- */

/* A decimal number at *p, which is moved behind it; -1: there is none, or it is beyond INT64_MAX. */
static int64_t number(const char **p) {
    int64_t v = 0;
    const char *s = *p;
    if (*s < '0' || *s > '9') return -1;
    for (; *s >= '0' && *s <= '9'; s++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v)) return -1;
    *p = s;
    return v;
}

typedef struct {
    const char *name;
    int64_t factor;
} unit;
static const unit sizes[] = {{"", 1},        {"k", 1 << 10}, {"K", 1 << 10}, {"m", 1 << 20},
                             {"M", 1 << 20}, {"g", 1 << 30}, {"G", 1 << 30}, {NULL, 0}};
static const unit durations[] = {{"", 1}, {"ns", 1}, {"us", WEFT_US}, {"ms", WEFT_MS}, {"s", WEFT_SECOND}, {NULL, 0}};
static const unit none[] = {{"", 1}, {NULL, 0}};

/* The whole text as a number and one of the units; -1: it is not. */
static int64_t measured(const char *text, const unit *units) {
    int64_t v = number(&text);
    for (; v >= 0 && units->name; units++)
        if (strcmp(text, units->name) == 0) return __builtin_mul_overflow(v, units->factor, &v) ? -1 : v;
    return -1;
}

/* True if `word` is one of those that the sentence about it lists. */
static bool listed(const char *word, const char *list) {
    size_t n = strlen(word);
    if (strpbrk(word, " ,") || strcmp(word, "or") == 0) return false;
    for (const char *at = list; n && (at = strstr(at, word)); at += n) {
        char before = at == list ? ' ' : at[-1], after = at[n];
        if (before == ' ' && (after == 0 || after == ' ' || after == ',')) return true;
    }
    return false;
}

/* ---- one setting ---- */

/* What the text stands for, in *v. */
static bool parse(const setting *s, const char *text, int64_t *v) {
    switch (s->kind) {
    case NUMBER:
        *v = measured(text, none);
        break;
    case SIZE:
        *v = measured(text, sizes);
        break;
    case DURATION:
        *v = measured(text, durations);
        if (*v >= 0) return true;
        *v = -1;
        return !s->most && (strcmp(text, "off") == 0 || strcmp(text, "-1") == 0);
    case FLAG:
        *v = strcmp(text, "1") == 0;
        return *v || strcmp(text, "0") == 0;
    case WORD:
        return listed(text, s->means);
    }
    return *v >= 0 && *v <= s->most;
}

/* The size of a field follows from its kind. */
static int64_t get(const setting *s, const weft_config *c) {
    const char *at = (const char *)c + s->offset;
    if (s->kind == NUMBER) return *(const int *)(const void *)at;
    return s->kind == SIZE ? (int64_t) * (const size_t *)(const void *)at : *(const int64_t *)(const void *)at;
}

static void set(const setting *s, weft_config *c, int64_t v) {
    char *at = (char *)c + s->offset;
    if (s->kind == FLAG) {
        if (v) c->flags |= s->flag;
    } else if (s->kind == NUMBER) {
        *(int *)(void *)at = (int)v;
    } else if (s->kind == SIZE) {
        *(size_t *)(void *)at = (size_t)v;
    } else if (s->kind == DURATION) {
        *(int64_t *)(void *)at = v;
    }
}

/* Sizes beyond INT64_MAX look negative here, and are wrong as well. */
static int check_field(const setting *s, const weft_config *c) {
    if (!s->field || (s->kind == DURATION && !s->most)) return 0;
    int64_t v = get(s, c);
    if (v >= 0 && v <= s->most) return 0;
    if (s->kind == SIZE)
        weft__say("weft_config.%s is %zu; it must be %s", s->field, (size_t)v, s->means);
    else
        weft__say("weft_config.%s is %lld; it must be %s", s->field, (long long)v, s->means);
    return WEFT_EINVAL;
}

static int from_environment(const setting *s, weft_config *c) {
    const char *text = weft__env(s->variable);
    int64_t v = 0;
    if (!text) return 0;
    if (!parse(s, text, &v)) {
        weft__say("%s=\"%.64s\" in the environment; it must be %s", s->variable, text, s->means);
        return WEFT_EINVAL;
    }
    if (s->kind == FLAG || (s->field && get(s, c) == 0)) set(s, c, v);
    return 0;
}

/* ---- all of them ---- */

static bool known(const char *entry, size_t n) {
    for (size_t i = 0; i < weft__countof(settings); i++)
        if (strlen(settings[i].variable) == n && strncmp(settings[i].variable, entry, n) == 0) return true;
    return false;
}

/* Once for the process. */
static void name_unknown_variables(void) {
    static _Atomic bool done;
    if (weft__xchg(&done, true, relaxed) || !environ) return; /* orders nothing */
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "WEFT_", 5) != 0 || strncmp(*e, "WEFT_TEST_", 10) == 0 || known(*e, n)) continue;
        weft__say("%.*s in the environment is no setting of weft %s, and is ignored", n < 64 ? (int)n : 64, *e, weft_version());
    }
}

int weft__config_read(const weft_config *given, weft_config *out) {
    static const unsigned flags =
        WEFT_STACK_MEASURE | WEFT_STACK_REPORT | WEFT_STACK_ADVISED | WEFT_PANIC_ABORT | WEFT_PIN_WORKERS | WEFT_LOCK_CHECK;
    *out = given ? *given : (weft_config){0};
    if (out->flags & ~flags) {
        weft__say("weft_config.flags is 0x%x; of that, 0x%x has no meaning", out->flags, out->flags & ~flags);
        return WEFT_EINVAL;
    }
    for (size_t i = 0; i < weft__countof(settings); i++) {
        int err = check_field(&settings[i], out);
        if (err) return err;
    }
    for (size_t i = 0; i < weft__countof(settings); i++) {
        int err = from_environment(&settings[i], out);
        if (err) return err;
    }
    name_unknown_variables();
    return 0;
}
