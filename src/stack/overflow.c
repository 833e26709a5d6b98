/* SPDX-License-Identifier: MIT */
/* The last words of a task that used up its stack, or touched memory that is not there.
 *
 * The fault comes when there is no stack left to handle it on, so each worker has an alternate signal stack, and the handler is
 * installed with SA_ONSTACK. It asks: is the address in the guard of a stack that is in use, and is the stack pointer where it
 * would be if that stack had just grown into it? Then it reports and lets the process die by the same signal, so that a core
 * shows the faulting frame. Any other fault belongs to the handler that was there before. If there was none, the process dies of it:
 * then a fault on a task's stack is reported too, with the task's name, and everything else dies without a word, as ever.
 *
 *  1. Nothing is allocated or locked, and no stdio is used, before the sentence with task, limit and remedy is out. The rest
 *     is looked up with dladdr and the unwinder, which take the dynamic linker's lock: if that hangs, the important part is
 *     already printed. Both were called once at the start, since the first call loads libraries.
 *  2. One thread reports; others that overflow meanwhile wait for the end of the process.
 *  3. After the pool is closed there are no slabs, so a handler of ours that somebody has chained passes everything on.
 *
 * Rejected: raise() at the end (the core would show the handler, not the frame); siglongjmp out of it to end only the task
 * (locks and half-done work of the frames below stay behind: a hung program instead of a dead one). */
#include "stack/slab.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/os.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum {
    SIGNAL_STACK = 64 << 10, /* the unwinder needs about 11 KiB; the kernel's frame, with all its registers, comes on top */
    SLOP_ABOVE = 4 << 10,    /* the stack pointer may be this far above the address: red zone, pushes, a probe */
    SLOP_BELOW = 64 << 10,   /* or this far below: a large frame touched its upper part first */
    FRAMES = 48,
};

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction previous[weft__countof(signals)]; /* written by open only, before there are workers */
static _Atomic int reporting;

static _Thread_local struct {
    char *map; /* guard page, then the signal stack; NULL: none */
    stack_t before;
} mine;

/* ---- text without stdio ---- */

typedef struct text {
    size_t n;
    char buf[512];
} text;

static void put_char(text *t, char c) {
    if (t->n < sizeof t->buf) t->buf[t->n++] = c;
}

static void put(text *t, const char *s) {
    while (*s) put_char(t, *s++);
}

static void put_number(text *t, uint64_t v, unsigned base) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[v % base];
    while (v /= base);
    while (n) put_char(t, digits[--n]);
}

/* A name from the program: bounded, and it must not take over the terminal. */
static void put_name(text *t, const char *s) {
    put(t, " \"");
    for (int i = 0; s[i] && i < 64; i++) put_char(t, s[i] >= 32 && s[i] < 127 ? s[i] : '?');
    put_char(t, '"');
}

static void flush(text *t) {
    for (size_t done = 0; done < t->n;) {
        ssize_t r = write(STDERR_FILENO, t->buf + done, t->n - done);
        if (r <= 0) break;
        done += (size_t)r;
    }
    t->n = 0;
}

/* "0x5581 main+0x1f (prog)" or, without a symbol, what addr2line takes: "0x5581 (prog+0x581)". */
static void put_address(text *t, void *p) {
    Dl_info d;
    put(t, "0x");
    put_number(t, (uintptr_t)p, 16);
    if (!dladdr(p, &d) || !d.dli_fname) return;
    if (d.dli_sname) {
        put_char(t, ' ');
        put(t, d.dli_sname);
        put(t, "+0x");
        put_number(t, (uintptr_t)p - (uintptr_t)d.dli_saddr, 16);
    }
    put(t, " (");
    put(t, d.dli_fname);
    if (!d.dli_sname) {
        put(t, "+0x");
        put_number(t, (uintptr_t)p - (uintptr_t)d.dli_fbase, 16);
    }
    put_char(t, ')');
}

/* ---- whose fault ---- */

static uintptr_t stack_pointer(ucontext_t *u) {
#if defined(__x86_64__)
    return (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return (uintptr_t)u->uc_mcontext.sp;
#else
#error "which register is the stack pointer?"
#endif
}

static void *program_counter(ucontext_t *u) {
#if defined(__x86_64__)
    return (void *)u->uc_mcontext.gregs[REG_RIP];
#else
    return (void *)u->uc_mcontext.pc;
#endif
}

/* The stack whose guard holds the address; NULL: none. Below the lowest stack of a slab there is nothing of ours, so there even
 * a frame that stepped over the guard is recognised; elsewhere it would have hit a neighbour without a fault. */
static weft__stack *guarded_by(uintptr_t address) {
    for (weft__stack_slab *slab = weft__stack_slab_first(); slab; slab = slab->next) {
        uintptr_t base = (uintptr_t)slab->base;
        if (address + SLOP_BELOW < base || address >= base + slab->size) continue;
        size_t size = weft__stack_stride(slab->size_class), offset = address < base ? 0 : address - base;
        uint32_t i = (uint32_t)(offset / size);
        if (offset % size >= weft__guard_size(slab->size_class) || !weft__stack_slab_made(slab, i)) continue;
        return weft__stack_slab_at(slab, i);
    }
    return NULL;
}

static weft__stack *overflowed(siginfo_t *info, ucontext_t *u) {
    uintptr_t address = (uintptr_t)info->si_addr, sp = stack_pointer(u);
    if (sp > address + SLOP_ABOVE || sp + SLOP_BELOW < address) return NULL;
    return guarded_by(address);
}

/* ---- the report ---- */

/* "task 17 "parser": " */
static void put_who(text *t, weft__who *who) {
    if (who->id) {
        put(t, "task ");
        put_number(t, who->id, 10);
    } else {
        put(t, "a task");
    }
    if (who->name) put_name(t, who->name);
    put(t, ": ");
}

static void say_overflow(text *t, weft__stack *s, weft__who *who) {
    uint64_t kib = weft__stack_class_size(s->size_class) >> 10;
    put(t, "weft: stack overflow in ");
    put_who(t, who);
    put(t, "its stack of ");
    put_number(t, kib, 10);
    put(t,
        " KiB is used up.\n  Raise weft_task_opts.stack_size for this task, or weft_config.stack_size for all; memory is only "
        "used as far as a stack is touched.\n");
    flush(t);
}

static void say_fault(text *t, siginfo_t *info, weft__who *who) {
    put(t, info->si_signo == SIGSEGV ? "weft: SIGSEGV in " : "weft: SIGBUS in ");
    put_who(t, who);
    if (info->si_code == SI_KERNEL) {
        put(t, "bad access to an address that the kernel does not tell.\n");
    } else {
        put(t, "bad access to address 0x");
        put_number(t, (uintptr_t)info->si_addr, 16);
        put(t, ".\n");
    }
    flush(t);
}

static void say_where(text *t, const char *label, void *p) {
    if (!p) return;
    put(t, label);
    put_address(t, p);
    put_char(t, '\n');
    flush(t);
}

/* The unwinder starts here, in the handler; what people want to see starts at the faulting instruction. */
static void say_backtrace(text *t, void *pc) {
    void *frames[FRAMES];
    int n = weft__os_backtrace(frames, FRAMES), from = 0;
    while (from < n && frames[from] != pc) from++;
    if (from == n) from = 0;
    put(t, "  backtrace, innermost first:\n");
    flush(t);
    weft__os_backtrace_print(frames + from, n - from, STDERR_FILENO);
    if (n == FRAMES) put(t, "  … and more\n");
    flush(t);
}

/* Reports an overflow of the stack, or another fault of the task on it. */
static void report(weft__stack *s, siginfo_t *info, void *pc, bool overflow) {
    text t = {0};
    weft__who who = {0};
    if (weft__xchg(&reporting, 1, relaxed)) /* invariant 2; orders nothing else */
        for (;;) pause();
    if (weft__stack_who) weft__stack_who(s, &who);
    if (overflow)
        say_overflow(&t, s, &who);
    else
        say_fault(&t, info, &who);
    say_where(&t, "  function:   ", who.fn);
    say_where(&t, "  spawned at: ", who.site);
    say_where(&t, overflow ? "  ran out at: " : "  fault at:   ", pc);
    say_backtrace(&t, pc);
}

/* ---- the handler ---- */

static void set_default(int sig) {
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(sig, &dfl, NULL);
}

/* A fault repeats itself when the handler returns; a signal that was sent has to be sent again. */
static void die_by(int sig, siginfo_t *info) {
    set_default(sig);
    if (info->si_code <= 0) raise(sig);
}

static struct sigaction *previous_of(int sig) {
    return &previous[sig == signals[0] ? 0 : 1];
}

/* Returns true if the process dies of a fault when it is passed on. */
static bool is_unhandled(int sig) {
    struct sigaction *to = previous_of(sig);
    return !(to->sa_flags & SA_SIGINFO) && (to->sa_handler == SIG_DFL || to->sa_handler == SIG_IGN);
}

static void pass_on(int sig, siginfo_t *info, void *u) {
    struct sigaction *to = previous_of(sig);
    bool ignored = to->sa_handler == SIG_IGN && info->si_code <= 0; /* the kernel does not ignore real faults either */
    if (to->sa_flags & SA_SIGINFO)
        to->sa_sigaction(sig, info, u);
    else if (to->sa_handler != SIG_DFL && to->sa_handler != SIG_IGN)
        to->sa_handler(sig);
    else if (!ignored)
        die_by(sig, info);
}

static void on_fault(int sig, siginfo_t *info, void *context) {
    int saved = errno;
    bool fault = info->si_code > 0; /* else it was sent by a process */
    weft__stack *s = fault ? overflowed(info, context) : NULL, *on = NULL;
    if (fault && !s && is_unhandled(sig)) on = weft__stack_of((void *)stack_pointer(context));
    if (s || on) report(s ? s : on, info, program_counter(context), s);
    if (s)
        die_by(sig, info);
    else
        pass_on(sig, info, context);
    errno = saved;
}

static bool is_ours(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_fault;
}

int weft__overflow_open(void) {
    void *warm[2];
    Dl_info d;
    if (weft__os_backtrace(warm, 2) > 0) dladdr(warm[0], &d); /* invariant 1 */
    if (weft__fault()) return -weft__fault_errno;
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, old;
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < weft__countof(signals); i++) {
        sigaction(signals[i], NULL, &old); /* cannot fail for these signals */
        if (is_ours(&old)) continue;
        previous[i] = old;
        sigaction(signals[i], &act, NULL);
    }
    return 0;
}

/* A handler that was installed over ours meanwhile stays; it may call ours, which then passes on, or put it back. So the object that has
 * ours must stay loaded from now on: a reference is taken and never dropped. */
void weft__overflow_close(void) {
    static void *module;
    struct sigaction now;
    for (size_t i = 0; i < weft__countof(signals); i++) {
        sigaction(signals[i], NULL, &now); /* cannot fail, as in open */
        if (is_ours(&now))
            sigaction(signals[i], &previous[i], NULL);
        else if (!module)
            (void)weft__module_take(&module);
    }
}

/* ---- per thread ---- */

/* Whole pages for our frames and the kernel's: 11 KiB with AVX-512, more with the matrix registers of AArch64. */
static size_t signal_stack(void) {
    size_t page = weft__page_size(), kernel = getauxval(AT_MINSIGSTKSZ); /* 0: older than such registers */
    return (SIGNAL_STACK + kernel + page - 1) & ~(page - 1);
}

int weft__stack_thread_open(void) {
    size_t page = weft__page_size(), size = signal_stack();
    char *map = weft__vm_reserve(page + size, page);
    if (!map) return -ENOMEM;
    int err = weft__vm_protect_none(map, page);
    if (err) goto unmap;
    stack_t alt = {.ss_sp = map + page, .ss_size = size};
    err = weft__fault() ? -weft__fault_errno : sigaltstack(&alt, &mine.before) != 0 ? -errno : 0;
    if (err) goto unmap;
    mine.map = map;
    return 0;
unmap:
    weft__vm_release(map, page + size);
    return err;
}

void weft__stack_thread_close(void) {
    if (!mine.map) return;
    sigaltstack(&mine.before, NULL);
    weft__vm_release(mine.map, weft__page_size() + signal_stack());
    mine.map = NULL;
}
