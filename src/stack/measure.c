/* SPDX-License-Identifier: MIT */
/* How deep the stacks of each spawn site's tasks become, for people who want to choose sizes.
 *
 * A stack tells only how deep all its tasks together went. So, while it is measured, a stack is given back after each task, its lowest
 * page in memory is noted for the task's spawn site, and all but the top is dropped again; and no child runs on its opener's stack.
 * That costs some microseconds for each task, and nothing at all when it is off: the ways out are taken where stacks are made
 * (`again`, `inside`, `watched`). What the kernel tells is exact to a page. Nothing is trimmed meanwhile, since that would hide depth.
 *
 * The advice is the class with room for twice the deepest seen: what was not seen yet, a longer input or a signal on the stack, must
 * fit too. */
#include "stack/slab.h"

#include "base/lock.h"
#include "os/os.h"

enum {
    SITES = 1024, /* a power of two; the tasks of more places are not noted */
    ENOUGH = 16,  /* tasks of a site that must have ended before its advice is followed */
};
#define TOP_MAX ((size_t)2 << 10) /* of a stack's top that is not for frames, whatever its colour */

bool weft__stack_measuring;

static struct {
    weft__lock lock;
    weft__stack_site site[SITES]; /* found by hash, then the next free place; under lock */
} sites;

void weft__stack_measure_forget(void) {
    weft__lock_leave(&sites.lock);
}

static int advice(size_t deepest) {
    int cls = weft__stack_class(1);
    while (cls < WEFT_STACK_CLASSES - 1 && weft__stack_class_size(cls) - weft__guard_size(cls) - TOP_MAX < 2 * deepest) cls++;
    return cls;
}

/* Under the lock: its place, or where it would be; NULL: there is no room. */
static weft__stack_site *find(void *site, void *fn) {
    uint64_t hash = ((uintptr_t)site * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uintptr_t)fn * UINT64_C(0xbf58476d1ce4e5b9));
    for (uint32_t i = 0; i < SITES; i++) {
        weft__stack_site *x = &sites.site[(i + (hash >> 32)) % SITES];
        if (!x->tasks || (x->site == site && x->fn == fn)) return x;
    }
    return NULL;
}

static void note(const weft__who *who, int cls, size_t depth) {
    weft__lock_take(&sites.lock);
    weft__stack_site *x = find(who->site, who->fn);
    if (x) {
        x->site = who->site;
        x->fn = who->fn;
        x->size_class = cls;
        x->tasks++;
        if (depth > x->deepest) x->deepest = depth;
    }
    weft__lock_leave(&sites.lock);
}

void weft__stack_measure(weft__stack *s) {
    size_t page = weft__page_size();
    char *from = weft__stack_first_page(s), *top = weft__stack_top(s), *lowest;
    char *sp = __builtin_frame_address(0), *keep = sp > s->low && sp < s->high ? sp - page : s->high;
    weft__who who = {0};
    if (weft__vm_resident(from, (size_t)(top - from), &lowest) <= 0) return;
    if (weft__stack_who) weft__stack_who(s, &who);
    if (who.id) note(&who, s->size_class, lowest < s->high ? (size_t)(s->high - lowest) : 0);
    keep = (char *)((uintptr_t)keep & ~(page - 1));
    if (lowest < keep)
        (void)weft__vm_drop(lowest, (size_t)(keep - lowest)); /* refused: the next depth is too large, to the safe side */
}

void weft__stack_measure_clear(void) {
    weft__lock_take(&sites.lock);
    memset(sites.site, 0, sizeof sites.site);
    weft__lock_leave(&sites.lock);
}

bool weft__stack_site_get(uint32_t i, weft__stack_site *out) {
    bool found = false;
    weft__lock_take(&sites.lock);
    for (uint32_t at = 0; at < SITES && !found; at++)
        if (sites.site[at].tasks && i-- == 0) {
            *out = sites.site[at];
            out->advice = advice(out->deepest);
            found = true;
        }
    weft__lock_leave(&sites.lock);
    return found;
}

int weft__stack_advised(void *site, void *fn, int otherwise) {
    weft__lock_take(&sites.lock);
    weft__stack_site *x = find(site, fn);
    int cls = x && x->tasks >= ENOUGH ? advice(x->deepest) : otherwise;
    weft__lock_leave(&sites.lock);
    return cls;
}
