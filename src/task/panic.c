/* SPDX-License-Identifier: MIT */
/* Panics: a function gives up, and with it everything up to the nearest boundary: a weft_try, or the task's own function.
 *
 * A panic is raised as an exception of its own class through the unwinder that C++ uses; context/unwind.h says how a boundary stops it. A C++
 * exception that nobody catches comes the same way, and is a panic from the boundary's search on. What happens, in order:
 *
 *   weft_panic             the record: message, place, backtrace
 *   weft__unwind_caught    all frames still stand, and nobody below catches it. Not in a weft_try: the hook or the report, maybe abort.
 *                          The scopes and shields opened below the boundary are cancelled, joined and ended, with what was deferred
 *   (the unwinder)         destructors
 *   weft__unwind_landed    weft_try gets the record, else it is freed; the boundary's call returns WEFT_EPANIC
 *   exit.c                 the functions of weft_at_exit, task-locals
 *
 * Invariants
 *  X1  A child that runs inside its opener is a boundary, so its panic never reaches the opener's frames.
 *  X2  Scopes are ended before the first frame goes: no child sees an object that a destructor has ended. (A child that waits, without being cancellable,
 *      for something that only a destructor releases would wait for ever.)
 *  X3  `panics` holds those between caught and landed. A second one of the same task with no weft_try in between aborts: whoever it should
 *      reach is gone. A panic in a hook is such a second one.
 *  X4  What a boundary finds is what it left: scopes by X2, `tries` and `panics` because they are popped where they were pushed.
 *
 * A C++ `catch (...)` catches a panic as it catches anything; then none of this happens, and scopes are the program's own affair as with any
 * other exception. One that is left open in a frame that is gone aborts.
 *
 * Rejected: ending the scopes while unwinding, frame by frame (a frame's destructors run before or after its scope ends, and both are wrong for
 * somebody; before any destructor, nothing can be used after its end). Jumping over frames that have no unwind tables (the registers they
 * keep are lost; compilers make tables by default on every machine weft runs on). */
#include "task/panic.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct weft__try {
    weft__try *prev;
    weft__scope *scope;  /* innermost when it began */
    uint32_t pins;       /* of the task, likewise */
    uint32_t blocks;     /* likewise */
    weft__panic *caught; /* written by weft__unwind_landed */
    bool quiet;          /* weft_try: whoever called it wants to know; else it is reported */
};

struct weft__panic {
    char before[WEFT_CXX_HEADER]; /* zero: libstdc++'s std::terminate takes this for a header of its own, whatever was thrown */
    struct _Unwind_Exception head; /* unused if it was an exception of somebody else */
    weft__panic *prev;
    weft__try *tries; /* who it is, for X3: the innermost try and */
    weft__fresh *inner;
    weft__scope *until; /* the innermost scope of the boundary */
    weft_panic_info info;
    unsigned uncaught; /* C++ exceptions on their way when it was raised */
    bool spare;
};

#define PANIC_CLASS UINT64_C(0x5745465450414e00) /* "WEFTPAN"; even: libstdc++ takes odd ones for dependent exceptions */

/* ---- records ---- */

enum { SPARES = 8 }; /* for when there is no memory; more panics at once, then, abort */
static weft__panic spares[SPARES];
static _Atomic bool spare_taken[SPARES];

static weft__panic *record_new(void) {
    weft__panic *p = weft__calloc(1, sizeof *p);
    if (p) return p;
    for (int i = 0; i < SPARES; i++) {
        if (weft__xchg(&spare_taken[i], true, acquire)) continue; /* pairs with record_free */
        memset(&spares[i], 0, sizeof spares[i]);
        spares[i].spare = true;
        return &spares[i];
    }
    return NULL;
}

static void record_free(weft__panic *p) {
    if (p->spare)
        weft__store(&spare_taken[p - spares], false, release); /* pairs with record_new */
    else
        weft__free(p);
}

static WEFT_NOINLINE weft__unwind *threads_own(void) {
    static __thread weft__unwind own;
    return &own;
}

/* The calling task's, or the plain thread's. */
static weft__unwind *mine(void) {
    weft__task *t = weft__cur(weft__self());
    return t ? &t->unwind : threads_own();
}

static weft__fresh *inner_of(weft__task *t) {
    return t ? t->inner : NULL;
}

bool weft__unwinding(void) {
    weft__panic *p = mine()->panics;
    return p && p->inner == inner_of(weft__cur(weft__self()));
}

bool weft__unwound_to(const weft__scope *s) {
    return weft__unwinding() && mine()->panics->until == s;
}

/* Who panics. */
static void fill_who(weft_panic_info *info) {
    weft__task *t = weft__cur(weft__self());
    if (!t) return;
    weft__fresh *f = t->inner;
    weft__extra *x = f ? f->extra : t->extra;
    info->task = weft_self();
    info->function = (void *)(uintptr_t)(f ? f->fn : t->fn);
    info->spawned_at = f ? f->site : t->site;
    if (x) snprintf(info->name, sizeof info->name, "%s", x->name);
}

static bool is_site(void *pc, void *site) {
    return pc == site;
}

/* ---- the report ---- */

/* "0x5581 main+0x1f (prog)" or, without a symbol, what addr2line takes: "0x5581 (prog+0x581)". */
static void print_address(const char *label, void *p) {
    Dl_info d;
    char where[256] = "";
    if (!p) return;
    if (dladdr(p, &d) && d.dli_fname && d.dli_sname)
        snprintf(where, sizeof where, " %s+0x%zx (%s)", d.dli_sname, (size_t)((char *)p - (char *)d.dli_saddr), d.dli_fname);
    else if (dladdr(p, &d) && d.dli_fname)
        snprintf(where, sizeof where, " (%s+0x%zx)", d.dli_fname, (size_t)((char *)p - (char *)d.dli_fbase));
    dprintf(STDERR_FILENO, "  %s%p%s\n", label, p, where);
}

static weft__lock report_lock; /* reports do not mix */

void weft__panics_forget(void) {
    weft__lock_leave(&report_lock);
}

void weft_panic_report(const weft_panic_info *info) {
    char who[80] = "a plain thread", where[128] = "";
    if (info->task)
        snprintf(who, sizeof who, "task %llu%s%s%s", (unsigned long long)info->task, info->name[0] ? " \"" : "", info->name,
                 info->name[0] ? "\"" : "");
    if (info->file) snprintf(where, sizeof where, " at %s:%d", info->file, info->line);
    weft__lock_take(&report_lock);
    weft__say("panic in %s%s: %s", who, where, info->message);
    print_address("function:   ", info->function);
    print_address("spawned at: ", info->spawned_at);
    if (info->frames > 0) {
        dprintf(STDERR_FILENO, "  backtrace, innermost first:\n");
        weft__os_backtrace_print((void *const *)info->frame, info->frames, STDERR_FILENO);
    }
    weft__lock_leave(&report_lock);
}

/* As the configuration says, which is there as long as the runtime is. */
static void report_as_configured(const weft_panic_info *info) {
    if (weft__rt.on_panic)
        weft__rt.on_panic(info, weft__rt.hook_arg);
    else
        weft_panic_report(info);
    if (weft__rt.panic_abort) abort();
}

static void report_uncaught(const weft_panic_info *info) {
    if (info->task) {
        report_as_configured(info);
        return;
    }
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    weft__foreign_enter(); /* a plain thread may outlive the runtime: before the look at the phase; pairs with weft_stop */
    int phase = weft__runtime_phase();
    if (phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING)
        report_as_configured(info);
    else
        weft_panic_report(info);
    weft__foreign_leave();
}

/* ---- raising ---- */

/* libstdc++ counts an exception that is not its own when it is thrown on, and not when it is caught. */
static void restore_uncaught(const weft__panic *p) {
    weft__eh *e = weft__eh_here();
    if (e) e->uncaught = p->uncaught;
}

/* It was in a frame that is gone: nothing there can be looked at any more. */
static bool is_lost(weft__task *t, weft__scope *s) {
    return (char *)s >= t->stack->low && (char *)s < weft__ctx_stack_pointer();
}

/* A C++ catch (...) has caught the panic and is done with it. Scopes of frames that are gone cannot be helped any more. */
static void swallowed(_Unwind_Reason_Code why, struct _Unwind_Exception *e) {
    weft__task *t = weft__cur(weft__self());
    weft__panic *p = weft__container(e, weft__panic, head);
    (void)why;
    weft__scope *in = t ? t->b.scope : NULL;
    while (in && !is_lost(t, in) && in->is_shield) in = in->parent; /* no frame has it */
    if (in && is_lost(t, in))
        weft__die("task %llu: catch (...) stopped the panic \"%s\", which left scope %p open; use weft_try, or end the scope "
                  "in a destructor",
                  (unsigned long long)weft_self(), p->info.message, (void *)in);
    restore_uncaught(p);
    record_free(p);
}

static WEFT_NORETURN void raise_panic(const char *file, int line, void *site, const char *fmt, va_list ap) {
    weft__panic *p = record_new();
    if (!p) weft__die("panic at %s:%d (%p), and no memory for a panic: %s", file ? file : "?", line, site, fmt);
    weft_panic_info *info = &p->info;
    vsnprintf(info->message, sizeof info->message, fmt, ap);
    info->file = file;
    info->line = line;
    info->site = site;
    fill_who(info);
    info->frames = weft__unwind_backtrace(info->frame, WEFT_PANIC_FRAMES, is_site, site);
    if (weft__cur(weft__self()) || mine()->tries) {
        weft__eh *eh = weft__eh_here();
        p->uncaught = eh ? eh->uncaught : 0;
        p->head.exception_class = PANIC_CLASS;
        p->head.exception_cleanup = swallowed;
        weft__unwind_raise(&p->head);
        weft_panic_report(info);
        weft__die(weft__os_can_unwind()
                      ? "the panic cannot be unwound: the backtrace ends at code without unwind tables; compile that with "
                        "-fasynchronous-unwind-tables"
                      : "the panic cannot be unwound: the program has no index of its unwind tables; link it with "
                        "-Wl,--eh-frame-hdr");
    }
    report_uncaught(info);
    weft__die("a panic on a plain thread outside weft_try");
}

#undef weft_panic
void weft_panic(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    raise_panic(NULL, 0, __builtin_return_address(0), fmt, ap);
}

void weft_panic_at(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    raise_panic(file, line, __builtin_return_address(0), fmt, ap);
}

/* ---- at the boundary ---- */

static bool is_panic(const struct _Unwind_Exception *e) {
    return (uint64_t)e->exception_class == PANIC_CLASS;
}

/* The frame that threw: the first behind the last one that belongs to throwing. */
static bool is_thrower(void *pc, void *arg) {
    bool *before = arg, throwing = weft__unwind_is_throw(pc), first = *before && !throwing;
    *before = throwing;
    return first;
}

static weft__panic *from_exception(struct _Unwind_Exception *e) {
    weft__panic *p = record_new();
    if (!p) weft__die("a task let an exception out, and there is no memory for a panic");
    weft_panic_info *info = &p->info;
    bool throwing = false;
    if (weft__cxx_is(e)) {
        int n = snprintf(info->message, sizeof info->message, "uncaught C++ exception ");
        weft__cxx_describe(e, info->message + n, sizeof info->message - (size_t)n);
    } else {
        snprintf(info->message, sizeof info->message, "uncaught exception of class %#llx",
                 (unsigned long long)e->exception_class);
    }
    fill_who(info);
    info->frames = weft__unwind_backtrace(info->frame, WEFT_PANIC_FRAMES, is_thrower, &throwing);
    info->site = info->frames ? info->frame[0] : NULL;
    return p;
}

/* X3 */
static void check_second(weft__unwind *u, weft__panic *p) {
    weft__panic *first = u->panics;
    if (!first || first->inner != p->inner || first->tries != p->tries) return;
    weft_panic_report(&p->info);
    weft__die("task %llu panicked while it was unwinding from \"%s\"", (unsigned long long)p->info.task, first->info.message);
}

/* Cancels what the block has opened inside `around`. A shield keeps out what comes from outside it, not a panic of its own task: behind each
 * there is a tree of its own to be cancelled. */
static void cancel_scopes(weft__block *b, weft__scope *around) {
    weft__slot *s = weft__enter();
    for (weft__scope *x = b->scope; x != around; x = x->parent)
        if (x->is_shield || x->parent == around) weft__scope_cancel(x, WEFT_EPANIC, s);
    if (s) weft__leave();
}

/* X2: cancels and joins what was opened inside `until` (NULL: a plain thread's outermost). */
static void end_scopes(weft__block *b, weft__scope *until) {
    if (b->scope == until) return;
    cancel_scopes(b, until ? until : &weft__root);
    while (b->scope != until) {
        if (b->scope->is_shield)
            weft__shield_end(b, b->scope);
        else
            (void)weft_scope_end((weft_scope *)(void *)b->scope);
    }
}

void weft__unwind_caught(struct _Unwind_Exception *e, bool in_try) {
    weft__unwind *u = mine();
    weft__task *t = weft__cur(weft__self());
    weft__panic *p = is_panic(e) ? weft__container(e, weft__panic, head) : from_exception(e);
    weft__eh kept = weft__eh_take(); /* hooks and children are not in the middle of this exception */
    p->tries = u->tries;
    p->inner = inner_of(t);
    check_second(u, p);
    p->prev = u->panics;
    u->panics = p;
    if (!in_try || !u->tries->quiet) report_uncaught(&p->info);
    p->until = in_try ? u->tries->scope : t->inner ? t->inner->home : t->b.home;
    end_scopes(weft__me(), p->until);
    weft__eh_put(kept);
}

/* What is left of the task's pins when the function that ends here takes its own with it. */
static uint32_t pins_without(weft__task *t) {
    if (t->inner) return t->pins - t->inner->shape.extra;
    return t->extra ? t->extra->pinned : 0;
}

void weft__unwind_landed(struct _Unwind_Exception *e, bool in_try) {
    weft__unwind *u = mine();
    weft__panic *p = u->panics;
    u->panics = p->prev;
    weft__task *t = weft__cur(weft__self());
    if (t) weft__pin_set(t, in_try ? u->tries->pins : pins_without(t));
    if (t && (in_try || !t->inner)) weft__store(&t->blocks, in_try ? u->tries->blocks : 0, relaxed); /* a hint for the watch */
    if (is_panic(e))
        restore_uncaught(p);
    else
        weft__cxx_drop(e);
    if (in_try)
        u->tries->caught = p;
    else
        record_free(p);
}

/* ---- containing ---- */

static int contain(weft_fn *fn, void *arg, bool quiet, weft_panic_info *info) {
    weft__unwind *u = mine();
    weft__task *t = weft__cur(weft__self());
    weft__try try = {.prev = u->tries,
                     .scope = weft__me()->scope,
                     .pins = t ? t->pins : 0,
                     .blocks = t ? weft__load(&t->blocks, relaxed) : 0,
                     .quiet = quiet};
    u->tries = &try;
    uint32_t binds = t ? t->binds : 0;
    int result = weft__call_try(fn, arg);
    u->tries = try.prev;
    if (try.caught) {
        if (t && t->binds > binds) weft__bind_back(binds); /* t is where it was: at the top of the stack */
        if (info) *info = try.caught->info;
        record_free(try.caught);
    } else if (info) {
        memset(info, 0, sizeof *info);
    }
    return result;
}

int weft_try(weft_fn *fn, void *arg, weft_panic_info *info) {
    return contain(fn, arg, true, info);
}

int weft__contain(weft_fn *fn, void *arg) {
    return contain(fn, arg, false, NULL);
}
