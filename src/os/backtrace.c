/* SPDX-License-Identifier: MIT */
/* Backtraces for people. glibc has them; other C libraries (musl) have no <execinfo.h>: there the compiler's unwinder walks,
 * and where the dynamic linker knows no names (a static program) the addresses stand alone, for addr2line. The unwinder aborts
 * in a program that was linked without an index of its unwind tables, as musl-gcc links unless told --eh-frame-hdr; so it is
 * asked nothing there, and reports say why they have no backtrace. */
#include "os/os.h"

#if defined(__GLIBC__)
#include <execinfo.h>

bool weft__os_can_unwind(void) {
    return true;
}

int weft__os_backtrace(void **frames, int max) {
    return backtrace(frames, max);
}

void weft__os_backtrace_print(void *const *frames, int n, int fd) {
    backtrace_symbols_fd(frames, n, fd);
}

#else
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <unwind.h>

/* ---- for an unwinder that was built for glibc ----
 *
 * musl-gcc of Debian and others is gcc with another C library: its libgcc_eh asks glibc (2.35) where the unwind tables of an
 * address are. Weak and hidden: a C library that has the function is asked itself, and a libgcc that was built for musl asks
 * dl_iterate_phdr without us. */
typedef struct {
    uint64_t flags;
    void *start, *end, *map, *eh_frame_hdr;
    uint64_t reserved[7];
} dl_object; /* struct dl_find_object of glibc, on machines without a base of data addresses */

typedef struct {
    uintptr_t pc;
    dl_object *out;
} dl_query;

static int object_with_pc(struct dl_phdr_info *info, size_t size, void *arg) {
    dl_query *q = arg;
    void *tables = NULL;
    bool inside = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_GNU_EH_FRAME) tables = (void *)start;
        if (h->p_type != PT_LOAD || q->pc - start >= h->p_memsz) continue;
        inside = true;
        q->out->start = (void *)start;
        q->out->end = (void *)(start + h->p_memsz);
    }
    q->out->eh_frame_hdr = tables;
    return inside && tables;
}

int _dl_find_object(void *pc, dl_object *out) __attribute__((weak, visibility("hidden")));
int _dl_find_object(void *pc, dl_object *out) {
    dl_query q = {(uintptr_t)pc, out};
    return dl_iterate_phdr(object_with_pc, &q) > 0 ? 0 : -1;
}

/* ---- backtraces ---- */

typedef struct {
    void **frames;
    int n, max;
} walk;

static _Unwind_Reason_Code step(struct _Unwind_Context *ctx, void *arg) {
    walk *w = arg;
    void *pc = (void *)_Unwind_GetIP(ctx);
    if (!pc || w->n == w->max) return _URC_END_OF_STACK;
    w->frames[w->n++] = pc;
    return _URC_NO_REASON;
}

bool weft__os_can_unwind(void) {
    dl_object o;
    return _dl_find_object(__builtin_return_address(0), &o) == 0;
}

int weft__os_backtrace(void **frames, int max) {
    if (!weft__os_can_unwind()) return 0;
    walk w = {.frames = frames, .max = max};
    _Unwind_Backtrace(step, &w);
    return w.n;
}

void weft__os_backtrace_print(void *const *frames, int n, int fd) {
    Dl_info d;
    if (n == 0) dprintf(fd, "  none: the program has no index of its unwind tables (link it with -Wl,--eh-frame-hdr)\n");
    for (int i = 0; i < n; i++) {
        if (dladdr(frames[i], &d) && d.dli_fname)
            dprintf(fd, "%s(%s+0x%zx)[%p]\n", d.dli_fname, d.dli_sname ? d.dli_sname : "",
                    (size_t)((char *)frames[i] - (char *)(d.dli_sname ? d.dli_saddr : d.dli_fbase)), frames[i]);
        else
            dprintf(fd, "[%p]\n", frames[i]);
    }
}
#endif
