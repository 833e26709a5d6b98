/* SPDX-License-Identifier: MIT */
/* The layouts below are those of the Itanium C++ ABI, which libstdc++ and libc++ share on 64-bit machines. */
#include "context/cxx.h"

#include <stdio.h>
#include <stdlib.h>

#define WEAK __attribute__((weak))
weft__eh *__cxa_get_globals(void) WEAK;
void *__cxa_begin_catch(void *e) WEAK;
void __cxa_end_catch(void) WEAK;
char *__cxa_demangle(const char *name, char *out, size_t *size, int *status) WEAK;
extern const void *_ZTVN10__cxxabiv120__si_class_type_infoE[] WEAK;  /* vtables: a class with one base, */
extern const void *_ZTVN10__cxxabiv121__vmi_class_type_infoE[] WEAK; /* and with several, or virtual ones */

/* ---- the words ---- */

/* Not kept in a variable: its address is another one on another thread. */
WEFT_NOINLINE weft__eh *weft__eh_here(void) {
    return __cxa_get_globals ? __cxa_get_globals() : NULL;
}

weft__eh weft__eh_take(void) {
    weft__eh none = {NULL, 0}, *here = weft__eh_here(), kept = here ? *here : none;
    if (here) *here = none;
    return kept;
}

void weft__eh_put(weft__eh kept) {
    weft__eh *here = weft__eh_here();
    if (here) *here = kept;
}

/* ---- what was thrown ---- */

typedef struct type_info {
    const void *const *vtable;
    const char *name;
} type_info;

typedef struct {
    type_info head;
    const type_info *base;
} one_base;

typedef struct {
    type_info head;
    unsigned flags, count;
    struct {
        const type_info *type;
        long flags; /* 1 = virtual, 2 = public; above: where it lies */
    } base[];
} many_bases;

/* Before the unwinder's header. */
typedef struct {
    const type_info *type; /* of a dependent exception (rethrow_exception): the object itself */
    void *destructor, *unexpected, *terminate, *next;
    int handlers, switch_value;
    void *action, *lsda, *landing, *adjusted;
    struct _Unwind_Exception head;
} cxa_exception;
_Static_assert(offsetof(cxa_exception, head) == WEFT_CXX_HEADER, "the layout of the ABI");

#define CLASS_GNU UINT64_C(0x474e5543432b2b00)  /* "GNUCC++" */
#define CLASS_LLVM UINT64_C(0x434c4e47432b2b00) /* "CLNGC++" */

bool weft__cxx_is(const struct _Unwind_Exception *e) {
    uint64_t class = (uint64_t)e->exception_class & ~UINT64_C(0xff);
    return class == CLASS_GNU || class == CLASS_LLVM;
}

static bool has_vtable(const type_info *t, const void *const *vtable) {
    return vtable && t->vtable == vtable + 2; /* behind the offset and the type of the table itself */
}

/* The std::exception in the object; NULL: there is none. Classes are nested less deeply than a stack. */
static void *as_std_exception(void *object, const type_info *t) {
    if (strcmp(t->name, "St9exception") == 0) return object;
    if (has_vtable(t, _ZTVN10__cxxabiv120__si_class_type_infoE)) return as_std_exception(object, ((const one_base *)t)->base);
    if (!has_vtable(t, _ZTVN10__cxxabiv121__vmi_class_type_infoE)) return NULL;
    const many_bases *m = (const many_bases *)t;
    for (unsigned i = 0; i < m->count; i++) {
        long at = m->base[i].flags >> 8;
        if (!(m->base[i].flags & 2)) continue;
        if (m->base[i].flags & 1) at = *(long *)(*(char **)object + at);
        void *found = as_std_exception((char *)object + at, m->base[i].type);
        if (found) return found;
    }
    return NULL;
}

/* Its virtual functions: two destructors, what(). */
static const char *what_of(void *std_exception) {
    typedef const char *what(const void *);
    return ((what **)*(void **)std_exception)[2](std_exception);
}

void weft__cxx_describe(struct _Unwind_Exception *e, char *out, size_t size) {
    cxa_exception *x = weft__container(e, cxa_exception, head);
    void *object = x + 1;
    if ((uint64_t)e->exception_class & 1) { /* dependent */
        object = (void *)(uintptr_t)x->type;
        x = (cxa_exception *)object - 1;
    }
    const char *name = x->type->name + (x->type->name[0] == '*');
    int status = -1;
    char *readable = __cxa_demangle ? __cxa_demangle(name, NULL, NULL, &status) : NULL;
    void *std_exception = as_std_exception(object, x->type);
    snprintf(out, size, "%s%s%s", readable && !status ? readable : name, std_exception ? ": " : "",
             std_exception ? what_of(std_exception) : "");
    free(readable);
}

void weft__cxx_drop(struct _Unwind_Exception *e) {
    if (!weft__cxx_is(e) || !__cxa_begin_catch || !__cxa_end_catch) {
        _Unwind_DeleteException(e);
        return;
    }
    __cxa_begin_catch(e);
    __cxa_end_catch();
}
